// gRPC's C++ API, with the stubs that generated code has: grpc TARGET CA COUNT PAUSE SCENARIO...
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

using grpc::ByteBuffer;
using grpc::ClientContext;
using grpc::Status;
using grpc::internal::RpcMethod;

static std::string target, ca;
static int count;
static double pause_seconds;

static std::string message(const std::string& value) {
  std::string m = "\x0a";
  size_t n = value.size();
  for (; n > 127; n >>= 7) m += char((n & 127) | 128);
  return m + char(n) + value;
}

static ByteBuffer buffer(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return ByteBuffer(&slice, 1);
}

static std::string text(const ByteBuffer& b) {
  std::vector<grpc::Slice> slices;
  std::string all;
  if (b.Valid() && b.Dump(&slices).ok())
    for (auto& s : slices) all.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return all;
}

// name returns the name of a status. The text of one that says that the connection failed goes to
// the errors.
static std::string name(const Status& s) {
  static const std::map<int, std::string> names = {{0, "OK"}, {1, "CANCELLED"}, {4, "DEADLINE_EXCEEDED"}, {8, "RESOURCE_EXHAUSTED"},
                                                   {9, "FAILED_PRECONDITION"}, {13, "INTERNAL"}, {14, "UNAVAILABLE"}};
  if (s.error_code() == 13 || s.error_code() == 14) std::cerr << s.error_message() + "\n";
  auto at = names.find(s.error_code());
  return at == names.end() ? std::to_string(s.error_code()) : at->second;
}

using Channel = std::shared_ptr<grpc::Channel>;

static Channel dial(int ping_ms = 0) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(-1);
  args.SetMaxSendMessageSize(-1);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (ping_ms) {
    args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ping_ms);
    args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    args.SetInt(GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS, ping_ms);
  }
  if (ca.empty()) return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), args);
  std::ifstream file(ca);
  std::stringstream pem;
  pem << file.rdbuf();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = pem.str();
  return grpc::CreateCustomChannel(target, grpc::SslCredentials(options), args);
}

// unary_call makes a call, and waits for its end.
static Status unary_call(const Channel& c, const char* path, const std::string& request, std::string* response, ClientContext* ctx) {
  ByteBuffer out;
  Status s = grpc::internal::BlockingUnaryCall(c.get(), RpcMethod(path, RpcMethod::NORMAL_RPC, c), ctx, buffer(request), &out);
  if (response) *response = text(out);
  return s;
}

static const char *echo = "/percore.Bytes/Echo", *wait_ = "/percore.Bytes/Wait";
static const std::string small = message("hello");

// parallel makes calls at once, and adds up what they return.
static std::string parallel(int n, std::function<Status(int)> call, std::map<std::string, int> tally = {}) {
  std::vector<std::string> codes(n);
  std::vector<std::thread> threads;
  for (int i = 0; i < n; i++) threads.emplace_back([&, i] { codes[i] = name(call(i)); });
  for (auto& t : threads) t.join();
  for (auto& c : codes) tally[c]++;
  std::string all;
  for (auto& [code, times] : tally) all += (all.empty() ? "" : ", ") + std::to_string(times) + " " + code;
  return all;
}

static Status echo_once(const Channel& c) {
  ClientContext ctx;
  return unary_call(c, echo, small, nullptr, &ctx);
}

static std::unique_ptr<grpc::ClientReader<ByteBuffer>> source(const Channel& c, ClientContext* ctx, const std::string& what) {
  return std::unique_ptr<grpc::ClientReader<ByteBuffer>>(grpc::internal::ClientReaderFactory<ByteBuffer>::Create(
      c.get(), RpcMethod("/percore.Bytes/Source", RpcMethod::SERVER_STREAMING, c), ctx, buffer(message(what))));
}

static std::unique_ptr<grpc::ClientReaderWriter<ByteBuffer, ByteBuffer>> chat(const Channel& c, ClientContext* ctx) {
  return std::unique_ptr<grpc::ClientReaderWriter<ByteBuffer, ByteBuffer>>(
      grpc::internal::ClientReaderWriterFactory<ByteBuffer, ByteBuffer>::Create(
          c.get(), RpcMethod("/percore.Bytes/Chat", RpcMethod::BIDI_STREAMING, c), ctx));
}

static std::string messages(int n, const Status& s) {
  return s.ok() ? std::to_string(n) + " messages" : name(s) + ": " + s.error_message();
}

static void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

static std::map<std::string, std::function<std::string()>> scenarios = {
    {"unary",
     [] {
       Channel c = dial();
       const int threads = 20;
       std::vector<std::map<std::string, int>> tallies(threads);
       std::vector<std::thread> all;
       for (int t = 0; t < threads; t++)
         all.emplace_back([&, t] {
           for (int i = t; i < count / 4; i += threads) tallies[t][name(echo_once(c))]++;
         });
       for (auto& t : all) t.join();
       std::map<std::string, int> sum;
       for (auto& t : tallies)
         for (auto& [code, n] : t) sum[code] += n;
       return parallel(0, nullptr, sum);
     }},
    {"up",
     [] {
       Channel c = dial();
       ClientContext ctx;
       ByteBuffer out;
       std::unique_ptr<grpc::ClientWriter<ByteBuffer>> w(grpc::internal::ClientWriterFactory<ByteBuffer>::Create(
           c.get(), RpcMethod("/percore.Bytes/Sink", RpcMethod::CLIENT_STREAMING, c), &ctx, &out));
       for (int i = 0; i < count && w->Write(buffer(small)); i++) {
       }
       w->WritesDone();
       Status s = w->Finish();
       return s.ok() ? text(out).substr(2) : messages(0, s);
     }},
    {"down",
     [] {
       Channel c = dial();
       ClientContext ctx;
       auto r = source(c, &ctx, std::to_string(count) + " 5");
       ByteBuffer m;
       int n = 0;
       while (r->Read(&m)) n++;
       return messages(n, r->Finish());
     }},
    {"both",
     [] {
       Channel c = dial();
       ClientContext ctx;
       auto s = chat(c, &ctx);
       std::thread writer([&] {
         for (int i = 0; i < count && s->Write(buffer(small)); i++) {
         }
         s->WritesDone();
       });
       ByteBuffer m;
       int n = 0;
       while (s->Read(&m)) n++;
       writer.join();
       return messages(n, s->Finish());
     }},
    {"slow",
     [] {
       Channel c = dial();
       ClientContext ctx;
       auto r = source(c, &ctx, "512 16384");
       ByteBuffer m;
       int n = 0;
       while (r->Read(&m)) {
         n++;
         if (n == 1 || n == 200) sleep_for(pause_seconds);
       }
       return messages(n, r->Finish());
     }},
    {"cancel",
     [] {
       Channel c = dial();
       std::map<std::string, int> tally;
       for (int round = 0; round < std::max(count / 1000, 5); round++) {
         std::vector<ClientContext> contexts(50);
         std::vector<std::string> codes(50);
         std::vector<std::thread> threads;
         for (int i = 0; i < 50; i++) threads.emplace_back([&, i] { codes[i] = name(unary_call(c, wait_, small, nullptr, &contexts[i])); });
         sleep_for(0.001);
         for (auto& ctx : contexts) ctx.TryCancel();
         for (auto& t : threads) t.join();
         for (auto& code : codes) tally[code]++;
         ClientContext ctx;
         auto r = source(c, &ctx, "1000000 100");
         ByteBuffer m;
         for (int i = 0; i < 3; i++) r->Read(&m);
         ctx.TryCancel();
         while (r->Read(&m)) {
         }
         r->Finish();
       }
       return parallel(1, [&](int) { return echo_once(c); }, tally);
     }},
    {"deadline",
     [] {
       Channel c = dial();
       return parallel(101, [&](int i) {
         if (i == 100) return echo_once(c);
         ClientContext ctx;
         ctx.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
         return unary_call(c, wait_, small, nullptr, &ctx);
       });
     }},
    {"big",
     [] {
       Channel c = dial();
       std::string m = message(std::string(8 << 20, 'x')), back;
       int same = 0;
       for (int i = 0; i < 3; i++) {
         ClientContext ctx;
         unary_call(c, echo, m, &back, &ctx);
         same += back == m;
       }
       ClientContext ctx;
       return std::to_string(same) + " the same, then " + name(unary_call(c, echo, message(std::string(17 << 20, 'x')), nullptr, &ctx));
     }},
    {"status",
     [] {
       ClientContext ctx;
       Channel c = dial();
       Status s = unary_call(c, echo, message("fail"), nullptr, &ctx);
       return name(s) + " " + s.error_message();
     }},
    {"metadata",
     [] {
       Channel c = dial();
       ClientContext ctx;
       std::map<std::string, std::string> sent;
       for (int i = 0; i < 50; i++) sent["x-field-" + std::to_string(i)] = std::string(100, 'v');
       for (int i = 0; i < 256; i++) sent["x-data-bin"] += char(i);
       for (auto& [k, v] : sent) ctx.AddMetadata(k, v);
       unary_call(c, echo, small, nullptr, &ctx);
       int header = 0, trailer = 0;
       for (auto& [k, v] : ctx.GetServerInitialMetadata()) header += sent[std::string(k.data(), k.size())] == std::string(v.data(), v.size());
       for (auto& [k, v] : ctx.GetServerTrailingMetadata()) trailer += sent[std::string(k.data(), k.size())] == std::string(v.data(), v.size());
       return std::to_string(header) + " in the header, " + std::to_string(trailer) + " in the trailer";
     }},
    {"keepalive",
     [] {
       Channel c = dial(200);
       ClientContext ctx;
       auto s = chat(c, &ctx);
       ByteBuffer m;
       int n = 0;
       s->Write(buffer(small));
       n += s->Read(&m);
       sleep_for(std::max(pause_seconds, 0.7));
       s->Write(buffer(small));
       s->WritesDone();
       while (s->Read(&m)) n++;
       return messages(n, s->Finish());
     }},
};

int main(int argc, char** argv) {
  target = argv[1], ca = argv[2], count = atoi(argv[3]), pause_seconds = atof(argv[4]);
  for (int i = 5; i < argc; i++) {
    auto start = std::chrono::steady_clock::now();
    std::string result = scenarios[argv[i]]();
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    for (char& c : result)
      if (c == '"' || c == '\\' || c == '\n') c = '\'';
    std::cout << "{\"scenario\": \"" << argv[i] << "\", \"result\": \"" << result << "\", \"seconds\": " << took.count() << "}" << std::endl;
  }
}
