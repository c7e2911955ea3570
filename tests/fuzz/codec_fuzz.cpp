// Any bytes are a codec frame or a typed error, also when their check is made right.
#include <cstdint>
#include <cstring>
#include <vector>

#include "weft/comm/codec.h"
#include "weft/comm/codec_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::comm;
  std::vector<std::byte> frame(size);
  if (size > 0) std::memcpy(frame.data(), data, size);
  for (const bool mend : {false, true}) {
    if (mend && size >= sizeof(FrameHeader)) {
      auto header = load_as<FrameHeader>(frame.data());
      header.magic = kFrameMagic;
      header.payload = size - sizeof header;
      header.check = frame_check(header, std::span(frame).subspan(sizeof header));
      std::memcpy(frame.data(), &header, sizeof header);
    }
    const auto info = inspect(frame);
    if (!info) {
      WEFT_CHECK(!info.error().message.empty());
      continue;
    }
    if (info->count > (1U << 16)) continue;
    std::vector<float> out(info->count);
    const weft::Status status = decode(frame, out);
    WEFT_CHECK(status || !status.error().message.empty());
  }
  return 0;
}
