// Runs a target where the compiler brings no libFuzzer: changes inputs of a corpus at random, keeps
// those that reach code which none before reached, and leaves an input that fails in a file. Takes
// libFuzzer's flags as far as they are used here and prints its last lines.
#include <sanitizer/common_interface_defs.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
using Clock = std::chrono::steady_clock;

struct Options {
  long max_total_time = 0;  // seconds; 0: the inputs are run once
  long timeout = 2;         // seconds of an input
  long rss_limit_mb = 1024;
  size_t max_len = 4096;
  uint32_t seed = 1;
  std::string artifact_prefix = "./";
  std::vector<std::string> paths;
};

constexpr unsigned kMostWaiting = 60;  // seconds
constexpr size_t kPlaces = 1 << 16;
uint8_t reached[kPlaces];  // by the input that runs
uint8_t reached_ever[kPlaces];
thread_local uintptr_t last_place = 0;

Options options;
const Bytes* running = nullptr;

// Named by its content, as FNV-1a has it.
void write_input(const Bytes& input, const char* prefix, char (&name)[512]) {
  uint64_t hash = 1469598103934665603u;
  for (const uint8_t byte : input) hash = (hash ^ byte) * 1099511628211u;
  std::snprintf(name, sizeof(name), "%s%016llx", prefix, static_cast<unsigned long long>(hash));
  if (FILE* file = std::fopen(name, "wb")) {
    std::fwrite(input.data(), 1, input.size(), file);
    std::fclose(file);
  }
}

// Also called out of signal handlers: what it uses is safe there, or the process is lost anyway.
void leave_input(const char* why) {
  if (running == nullptr) return;
  char prefix[256];
  char name[512];
  std::snprintf(prefix, sizeof(prefix), "%s%s-", options.artifact_prefix.c_str(), why);
  write_input(*running, prefix, name);
  std::fprintf(stderr, "Test unit written to %s\n", name);
  running = nullptr;
}

void on_death() { leave_input("crash"); }

void on_signal(int signal) {
  leave_input(signal == SIGALRM || signal == SIGPROF ? "timeout" : "crash");
  _exit(70);
}

long peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// SIGPROF after so many seconds of the processor, SIGALRM after so many on the clock; 0: none.
void set_timers(long cpu_s, unsigned clock_s) {
  itimerval timer{};
  timer.it_value.tv_sec = cpu_s;
  setitimer(ITIMER_PROF, &timer, nullptr);
  alarm(clock_s);
}

double run(const Bytes& input) {
  std::memset(reached, 0, sizeof(reached));
  running = &input;
  // Time is that of the processor, so that a busy machine fails nothing; one that waits for ever
  // takes none.
  set_timers(options.timeout + 1, kMostWaiting);
  const std::clock_t start = std::clock();
  LLVMFuzzerTestOneInput(input.data(), input.size());
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  set_timers(0, 0);
  if (seconds > static_cast<double>(options.timeout)) {
    leave_input("timeout");
    _exit(70);
  }
  if (peak_rss_mb() > options.rss_limit_mb) {
    leave_input("oom");
    _exit(70);
  }
  running = nullptr;
  return seconds;
}

bool reaches_more() {
  bool is_more = false;
  for (size_t i = 0; i < kPlaces; ++i) {
    is_more |= reached[i] != 0 && reached_ever[i] == 0;
    reached_ever[i] |= reached[i];
  }
  return is_more;
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t below(size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random_);
  }

  Bytes changed(const std::vector<Bytes>& corpus) {
    Bytes bytes = corpus[below(corpus.size())];
    for (size_t count = size_t{1} << below(4); count > 0; --count) change(bytes, corpus);
    if (bytes.size() > options.max_len) bytes.resize(options.max_len);
    return bytes;
  }

 private:
  void change(Bytes& bytes, const std::vector<Bytes>& corpus) {
    if (bytes.empty()) bytes.push_back(0);
    const size_t place = below(bytes.size());
    switch (below(8)) {
      case 0:
        bytes[place] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        bytes[place] = static_cast<uint8_t>(below(256));
        break;
      case 2:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(place),
                     static_cast<uint8_t>(below(256)));
        break;
      case 3:
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(place));
        break;
      case 4:
        put_number(bytes, place);
        break;
      case 5:
        bytes[place] = static_cast<uint8_t>(bytes[place] + below(17) - 8);
        break;
      case 6:
        copy_part(bytes, place, corpus[below(corpus.size())]);
        break;
      default:
        bytes.resize(below(bytes.size() + 64) + 1);
    }
  }

  void put_number(Bytes& bytes, size_t place) {
    const uint64_t bit = uint64_t{1} << below(64);
    const uint64_t number = below(2) == 0 ? bit : bit - 1;
    const size_t width = std::min(size_t{1} << below(4), bytes.size() - place);
    std::memcpy(bytes.data() + place, &number, width);
  }

  void copy_part(Bytes& bytes, size_t place, const Bytes& other) {
    if (other.empty()) return;
    const size_t from = below(other.size());
    const size_t count = std::min({below(32) + 1, other.size() - from, bytes.size() - place});
    std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), count,
                bytes.begin() + static_cast<std::ptrdiff_t>(place));
  }

  std::mt19937 random_;
};

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

std::vector<Bytes> read_corpus() {
  std::vector<Bytes> corpus;
  for (const std::string& path : options.paths) {
    if (!std::filesystem::is_directory(path)) {
      corpus.push_back(read_file(path));
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.is_regular_file()) corpus.push_back(read_file(entry.path()));
    }
  }
  if (corpus.empty()) corpus.emplace_back();
  return corpus;
}

void read_options(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = text.find('=');
    if (text[0] != '-' || equals == std::string::npos) {
      options.paths.push_back(text);
      continue;
    }
    const std::string name = text.substr(1, equals - 1);
    const std::string value = text.substr(equals + 1);
    if (name == "artifact_prefix") {
      options.artifact_prefix = value;
      continue;
    }
    const long number = std::atol(value.c_str());
    if (name == "max_total_time") options.max_total_time = number;
    if (name == "timeout") options.timeout = number;
    if (name == "rss_limit_mb") options.rss_limit_mb = number;
    if (name == "max_len") options.max_len = static_cast<size_t>(number);
    if (name == "seed") options.seed = static_cast<uint32_t>(number);
  }
}

}  // namespace

// Called at every piece of straight code of what is built with -fsanitize-coverage=trace-pc.
extern "C" void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  reached[(place ^ last_place) % kPlaces] = 1;
  last_place = place >> 1;
}

int main(int argc, char** argv) {
  read_options(argc, argv);
  __sanitizer_set_death_callback(on_death);
  for (const int one : {SIGABRT, SIGALRM, SIGPROF, SIGILL, SIGFPE, SIGBUS})
    std::signal(one, on_signal);
  std::vector<Bytes> corpus = read_corpus();
  double slowest = 0.0;
  size_t num_inputs = 0;
  for (const Bytes& input : corpus) {
    slowest = std::max(slowest, run(input));
    reaches_more();
    ++num_inputs;
  }
  // The first folder gets what reaches more.
  std::string folder;
  if (!options.paths.empty() && std::filesystem::is_directory(options.paths.front())) {
    folder = options.paths.front() + "/";
  }
  Mutator mutator(options.seed);
  const auto start = Clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  while (seconds() < static_cast<double>(options.max_total_time)) {
    const Bytes input = mutator.changed(corpus);
    slowest = std::max(slowest, run(input));
    ++num_inputs;
    if (!reaches_more()) continue;
    corpus.push_back(input);
    if (folder.empty()) continue;
    char name[512];
    write_input(input, folder.c_str(), name);
  }
  std::fprintf(stderr, "stat::number_of_executed_units: %zu\n", num_inputs);
  std::fprintf(stderr, "stat::new_units_added: %zu\n", corpus.size());
  std::fprintf(stderr, "stat::slowest_unit_time_sec: %.3f\n", slowest);
  std::fprintf(stderr, "stat::peak_rss_mb: %ld\n", peak_rss_mb());
  return 0;
}
