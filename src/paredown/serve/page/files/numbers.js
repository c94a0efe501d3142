// Numbers as people read them.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Returns `write(value)`, or "" for what is no number: figures come from a file that may be anybody's.
const shown = (write) => (value) => (isNumber(value) ? write(value) : "");

export const count = shown((value) => Math.round(value).toLocaleString("en"));

export const bytes = shown((value) => scaled(value, ["bytes", "kB", "MB", "GB", "TB"]));

export const parameters = shown((value) => scaled(value, ["", "thousand", "million", "billion"]).trim());

export const percent = shown((value) => `${significant(100 * value, 3)} %`);

export const change = shown((value) => `${value >= 0 ? "+" : "−"}${significant(100 * Math.abs(value), 2)} %`);

export const decimal = (digits) => shown((value) => value.toFixed(digits));

export const seconds = shown((value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`));

// A probability with as many digits as tell it from its neighbours.
export const probability = shown((value) => {
  if (value >= 0.9995) return value === 1 ? "100 %" : "> 99.9 %";
  return value < 0.0001 ? "< 0.01 %" : `${significant(100 * value, value < 0.1 ? 2 : 3)} %`;
});

export const rate = shown((value) => significant(value, 3));

function scaled(value, units) {
  let step = 0;
  while (value >= 999.5 && step < units.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${step ? significant(value, 3) : Math.round(value)} ${units[step]}`;
}

function significant(value, digits) {
  if (value === 0) return "0";
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toFixed(Math.max(0, Math.min(6, digits - whole)));
}
