// Returns [contrast, text] for each text that is shown, as WCAG 2.2 defines contrast.
() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (channel) => channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  const over = (colors) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => light(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const grounds = (node) => node ? [...grounds(node.parentElement), getComputedStyle(node).backgroundColor] : [];
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility() || node.closest('.unseen, noscript')) continue;
    const behind = grounds(node);
    const [one, other] = [over([...behind, getComputedStyle(node).color]), over(behind)].sort((a, b) => b - a);
    found.push([(one + 0.05) / (other + 0.05), node.textContent.trim().slice(0, 40)]);
  }
  return found;
}
