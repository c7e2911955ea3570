#include <cmath>
#include <cstdio>

#include "bench/bench.h"
#include "bench/collectives.h"
#include "weft/cli/learn/learn_commands.h"

namespace weft::cli {
namespace {

std::string cell(const std::optional<double>& value, const char* format) {
  if (!value) return "-";
  return fmt::format(fmt::runtime(format), *value);
}

void print_header() {
  std::printf("%-42s %-8s %10s %10s %7s %15s %10s %8s  %s\n", "case", "unit", "ours", "peer",
              "ratio", "(low to high)", "limit", "of limit", "isa");
}

// Four digits or one after the point, as suits the size.
std::string figure(double value) {
  return std::abs(value) < 10 ? fmt::format("{:.4g}", value) : fmt::format("{:.1f}", value);
}

void print_row(const std::string& name, const bench::CaseResult& result) {
  const std::string spread =
      result.ratio ? fmt::format("({:.2f} to {:.2f})", *result.ratio_low, *result.ratio_high) : "-";
  const bool limited = result.limit > 0;
  std::printf(
      "%-42s %-8s %10s %10s %7s %15s %10s %8s  %s\n", (name + " " + result.name).c_str(),
      result.unit.c_str(), figure(result.ours).c_str(),
      result.peer ? figure(*result.peer).c_str() : "-", cell(result.ratio, "{:.2f}").c_str(),
      spread.c_str(), limited ? figure(result.limit).c_str() : "-",
      limited ? fmt::format("{:.0f}%", 100 * result.of_limit).c_str() : "-", result.isa.c_str());
  std::fflush(stdout);
}

struct Settings {
  bench::CollectiveOptions collectives;
  std::string name;
  bench::BenchOptions options;
  int threads = 0;
  bool json = false;
  bool no_peers = false;
};

// nccl-tests' table: sizes, time, algorithm and bus bandwidth; then the peers.
int run_collectives(Settings settings) {
  settings.collectives.only = settings.options.only;
  settings.collectives.rounds = settings.options.rounds;
  settings.collectives.peers = !settings.no_peers;
  if (!settings.json) {
    std::printf("#%31s %11s %7s %10s %9s %9s | %10s %10s %6s %s\n", "case", "size", "type",
                "time (us)", "algbw", "busbw", "mpi (us)", "gloo (us)", "ratio", "(low to high)");
  }
  const auto row = [&](const bench::CollectiveResult& r) {
    if (settings.json) {
      std::printf("%s\n", dump_json(bench::to_json(r)).c_str());
    } else {
      const auto us = [](const std::optional<double>& seconds) {
        return seconds ? fmt::format("{:.2f}", *seconds * 1e6) : std::string("-");
      };
      const std::string spread =
          r.ratio ? fmt::format("{:6.2f} ({:.2f} to {:.2f})", *r.ratio, *r.ratio_low, *r.ratio_high)
                  : "-";
      std::printf("%32s %11lld %7s %10.2f %9.3f %9.3f | %10s %10s %s\n", r.name.c_str(),
                  static_cast<long long>(r.bytes), "float", r.ours * 1e6,
                  static_cast<double>(r.bytes) / r.ours * 1e-9, r.bus_bytes_per_s() * 1e-9,
                  us(r.open_mpi).c_str(), us(r.gloo).c_str(), spread.c_str());
    }
    std::fflush(stdout);
  };
  if (const Status status = bench::run_collectives(settings.collectives, row); !status) {
    return report(status.error());
  }
  return 0;
}

int run(Settings settings) {
  if (settings.name == "collectives") return run_collectives(std::move(settings));
  settings.options.peers = !settings.no_peers;
  if (settings.options.peers) {
    if (const auto python = bench::peer_python(); !python) {
      std::fprintf(stderr, "weft bench: %s; showing our figures alone\n",
                   python.error().message.c_str());
      settings.options.peers = false;
    }
  }
  ThreadPool pool(settings.threads);
  if (!settings.json) print_header();
  std::string peers;
  for (const bench::Benchmark& benchmark : bench::benchmarks()) {
    if (settings.name != "all" && settings.name != benchmark.name) continue;
    const auto report_case = [&](const bench::CaseResult& result) {
      if (settings.json) {
        std::printf("%s\n", dump_json(bench::to_json(result)).c_str());
        std::fflush(stdout);
      } else {
        print_row(benchmark.name, result);
      }
      if (!result.peer_version.empty() && peers.find(result.peer_version) == std::string::npos) {
        peers += (peers.empty() ? "" : "; ") + result.peer_version;
      }
    };
    if (!settings.options.quiet) {
      std::fprintf(stderr, "weft bench: %s (%s), %d threads\n", benchmark.name.c_str(),
                   benchmark.what.c_str(), pool.threads());
    }
    if (const Status status = benchmark.run(settings.options, pool, report_case); !status) {
      if (settings.name != "all" || status.error().code != ErrorCode::kUnavailable) {
        return report(status.error());
      }
      std::fprintf(stderr, "weft bench: left out %s: %s\n", benchmark.name.c_str(),
                   status.error().message.c_str());
    }
  }
  if (!settings.json) {
    std::printf("Medians of %d runs; ratio = ours / peer in the same round.%s%s\n",
                settings.options.rounds, peers.empty() ? "" : " Peers: ", peers.c_str());
  }
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* bench_app = app.add_subcommand("bench", "Run benchmarks beside the best peer");
  bench_app->require_subcommand(1);
  CLI::App* run_app = bench_app->add_subcommand(
      "run",
      "Runs a benchmark: our rate, the peer's, their ratio within a round and its spread, and\n"
      "what the machine allows.\n\nExample: weft bench run decode --only Q4_1 --json");
  auto settings = std::make_shared<Settings>();
  std::vector<std::string> names = {"all"};
  std::string help = "which benchmark: all";
  for (const bench::Benchmark& benchmark : bench::benchmarks()) {
    names.push_back(benchmark.name);
    help += ", " + benchmark.name;
  }
  names.push_back("collectives");
  help += ", collectives (not in all)";
  run_app->add_option("name", settings->name, help)->required()->check(CLI::IsMember(names));
  run_app->add_option("--model", settings->options.model, "a model's file, directory or name")
      ->capture_default_str();
  run_app
      ->add_option("--compute", settings->options.compute,
                   "arithmetic of decode, prefill and kl: auto, f32, bf16 or int8")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
  run_app->add_option("--only", settings->options.only, "cases whose name contains this");
  run_app
      ->add_option("--text", settings->options.text,
                   "English text of tokenize and kl; default: WikiText-2 in WEFT_DATA")
      ->check(CLI::ExistingFile);
  run_app->add_option("--rounds", settings->options.rounds, "pairs of runs for each case")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  run_app->add_option("--threads", settings->threads, "compute threads; 0: every core")
      ->check(CLI::Range(0, 1024));
  run_app->add_option("--ranks", settings->collectives.ranks, "collectives: numbers of processes")
      ->check(CLI::Range(1, 64))
      ->delimiter(',')
      ->capture_default_str();
  run_app->add_option("--min-bytes", settings->collectives.min_bytes, "collectives: smallest size")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 32))
      ->capture_default_str();
  run_app->add_option("--max-bytes", settings->collectives.max_bytes, "collectives: largest size")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1} << 32))
      ->capture_default_str();
  run_app->add_flag("--trace", settings->collectives.trace, "collectives: ours with a record ring");
  run_app->add_flag("--no-peers", settings->no_peers, "measure ours alone");
  run_app->add_flag("--json", settings->json, "one JSON object a case on stdout, nothing else");
  run_app->add_flag("--quiet", settings->options.quiet, "no progress on stderr");
  run_app->callback([settings, &exit_code] { exit_code = run(*settings); });
}

}  // namespace weft::cli
