// weft serve: one model over the OpenAI API, with a chat page.
#include <pthread.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>

#include "weft/base/file.h"
#include "weft/base/log.h"
#include "weft/cli/commands.h"
#include "weft/cli/compute_option.h"
#include "weft/model/load.h"
#include "weft/serve/engine.h"
#include "weft/serve/http_server.h"
#include "weft/serve/openai_service.h"

namespace weft::cli {
namespace {

struct ServeArguments {
  std::string model, name, compute = "auto";
  std::string api_key, api_key_file;
  serve::HttpServerOptions http;
  serve::EngineOptions engine;
  int threads = 0;
  std::int64_t kv_bytes = std::int64_t{1} << 30;
  std::int64_t max_body = std::int64_t{8} << 20;
  double drain_seconds = 30;
  bool insecure = false;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<std::string> read_api_key(const ServeArguments& arguments) {
  if (!arguments.api_key.empty()) return arguments.api_key;
  if (!arguments.api_key_file.empty()) {
    WEFT_ASSIGN(std::string key, read_file(arguments.api_key_file, 4096));
    while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' '))
      key.pop_back();
    if (key.empty())
      return fail(ErrorCode::kInvalidArgument, "--api-key-file {} is empty",
                  arguments.api_key_file);
    return key;
  }
  const char* key = std::getenv("WEFT_API_KEY");
  return std::string(key != nullptr ? key : "");
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// A second signal ends the process at once.
void leave_on_next_signal() {
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) { std::_Exit(130); });
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Result<int> run(ServeArguments arguments) {
  const auto begin = std::chrono::steady_clock::now();
  WEFT_ASSIGN(const std::string key, read_api_key(arguments));
  if (!is_loopback(arguments.http.host) && key.empty() && !arguments.insecure) {
    return fail(
        ErrorCode::kInvalidArgument,
        "--host {} is reachable from outside: give --api-key-file FILE (or --api-key KEY), or "
        "--insecure to serve everyone",
        arguments.http.host);
  }
  // Blocked before any thread starts, so that only sigwait() below sees them.
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  WEFT_ASSIGN(model::Model model, model::load_model(arguments.model));
  if (model.tokenizer == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "{} has no tokenizer, so it cannot be served",
                arguments.model);
  }
  if (!arguments.name.empty()) model.name = arguments.name;
  ThreadPool pool(arguments.threads);
  WEFT_ASSIGN(auto weights,
              nn::build_weights(model.config, model.weights,
                                choose_compute(arguments.compute, model.weights), pool));
  model.weights = {};  // what is packed is not needed as it was in the file
  arguments.engine.kv_bytes = arguments.kv_bytes;
  serve::Engine engine(weights, model.tokenizer, arguments.engine, pool);
  engine.start();

  serve::OpenAiServiceOptions options;
  options.model_name = model.name;
  options.api_key = key;
  options.created = std::time(nullptr);
  serve::OpenAiService service(engine, model.tokenizer, model.chat_template, options);
  serve::HttpServer::Hooks hooks;
  hooks.gate = [&](const serve::HttpRequest& request) { return service.gate(request); };
  hooks.handler = [&](const std::shared_ptr<serve::HttpExchange>& exchange) {
    service.handle(exchange);
  };
  hooks.error_body = [](int status, const std::string& message) {
    return serve::error_body({status, message, "", ""});
  };
  hooks.access_log = [&](const serve::HttpRequest& request, int status, double seconds,
                         std::size_t bytes) {
    service.log_access(request, status, seconds, bytes);
  };
  arguments.http.max_body_bytes = static_cast<std::size_t>(arguments.max_body);
  WEFT_ASSIGN(const auto server, serve::HttpServer::start(arguments.http, std::move(hooks)));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool v6 = arguments.http.host.find(':') != std::string::npos;
  std::printf("weft: serving %s at http://%s%s%s:%u (ready in %.2f s)\n", model.name.c_str(),
              v6 ? "[" : "", arguments.http.host.c_str(), v6 ? "]" : "", server->port(), seconds);
  std::fflush(stdout);

  int signal = 0;
  sigwait(&signals, &signal);
  leave_on_next_signal();
  service.start_draining();
  server->stop_accepting();
  log_info("draining: {} running and {} waiting get {} s (a second signal ends them)",
           engine.stats().running, engine.stats().waiting, arguments.drain_seconds);
  const auto drained = engine.drain(arguments.drain_seconds);
  if (!drained) log_warn("{}", drained.error().message);
  engine.stop();
  server->shutdown(2);  // the last bytes of the answers
  log_info("stopped");
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model over an OpenAI-compatible API, with a chat page");
  command->footer(
      "Example:\n"
      "  weft serve smollm2-135m-instruct --port 8080\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'");
  command
      ->add_option("MODEL", arguments->model,
                   "a model file, a folder, or the name of a fetched model")
      ->required();
  command->add_option("--host", arguments->http.host, "address to listen at")
      ->capture_default_str();
  command->add_option("--port", arguments->http.port, "0 = any free one")->capture_default_str();
  command->add_option("--name", arguments->name,
                      "the model's name in the API (default: the file's)");
  command->add_option(
      "--api-key", arguments->api_key,
      "ask for this key (visible to other users in the process list: prefer the next)");
  command->add_option("--api-key-file", arguments->api_key_file,
                      "ask for the key in this file; or set WEFT_API_KEY");
  command->add_flag("--insecure", arguments->insecure, "serve other machines without a key");
  add_compute_option(*command, "--compute", arguments->compute);
  command->add_option("--threads", arguments->threads, "compute threads; 0 = one a core");
  command->add_option("--http-threads", arguments->http.threads, "threads for connections")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--kv-bytes", arguments->kv_bytes, "memory for keys and values")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command->add_option("--context", arguments->engine.max_context,
                      "longest prompt and reply together; 0 = the model's");
  command->add_option("--max-queue", arguments->engine.max_queue, "waiting sequences before 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--max-body", arguments->max_body, "largest request body")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--max-connections", arguments->http.max_connections,
                   "open at once; more get 503")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--header-timeout", arguments->http.header_seconds,
                   "seconds for a request's headers")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--timeout", arguments->http.body_seconds, "seconds for a request's body")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--idle-timeout", arguments->http.idle_seconds,
                   "seconds between the requests of a connection")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--drain-seconds", arguments->drain_seconds,
                   "how long running requests may go on after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->callback([arguments, &exit_code] {
    const auto result = run(*arguments);
    exit_code = result ? *result : report(result.error());
  });
}

}  // namespace weft::cli
