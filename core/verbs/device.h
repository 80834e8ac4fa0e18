// SPDX-License-Identifier: BSD-3-Clause
// Device: an open adapter with its protection domain and the attributes the core uses.
//
// Owns the context and the domain; objects created from them must be destroyed first. The setting
// `device` selects the adapter (virtual, a name, or auto). One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/settings.h"
#include "base/status.h"
#include "core/verbs/gid.h"
#include "core/verbs/handles.h"
#include "core/verbs/library.h"

namespace turnout::verbs {

// The driver knows of dynamically connected queue pairs and makes one: older adapters of the same
// driver do not.
[[nodiscard]] bool makes_dc(ibv_device* device, ibv_context* context);

// One that was opened, and its first active port.
struct Adapter {
  ibv_context* context = nullptr;
  std::string name;
  ibv_device_attr attributes{};
  ibv_port_attr port{};
  std::uint8_t port_number = 0;
  bool has_dc = false;
};

class Device {
 public:
  // Devices that have DC come first, unless the setting `default_transport` is ud; it may be dc.
  // Errors: no_device (with what was found instead), permission, system.
  [[nodiscard]] static Result<std::unique_ptr<Device>> open(const Settings& settings);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] ibv_context* context() const noexcept { return adapter_.context; }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }
  [[nodiscard]] const std::string& name() const noexcept { return adapter_.name; }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }  // it was chosen
  [[nodiscard]] bool is_virtual() const noexcept { return virtual_; }
  // All its peers are in this process, under a virtual clock.
  [[nodiscard]] bool is_simulated() const noexcept { return simulated_; }
  // Its peers are processes of this host, on the virtual adapter.
  [[nodiscard]] bool is_between_processes() const noexcept {
    return is_virtual() && !is_simulated();
  }
  // rdma-core was asked to keep registered pages from children (ibv_fork_init): then it gives them
  // to children again when they are deregistered, which has to be before they are unmapped.
  [[nodiscard]] bool frees_pages_at_deregistration() const noexcept;
  [[nodiscard]] const ibv_device_attr& attributes() const noexcept { return adapter_.attributes; }
  [[nodiscard]] const ibv_port_attr& port() const noexcept { return adapter_.port; }
  [[nodiscard]] std::uint8_t port_number() const noexcept { return adapter_.port_number; }
  [[nodiscard]] const Gid& gid() const noexcept { return gid_; }
  [[nodiscard]] std::uint8_t gid_index() const noexcept { return gid_index_; }
  // Requests that found no receive at their target and were made again, since the device was
  // opened: the virtual adapter tells those of this context, a real one (mlx5's counter
  // rnr_nak_retry_err) those of all programs that use the port. None: it does not tell.
  [[nodiscard]] std::optional<std::uint64_t> rnr_retries() const;
  // The next asynchronous event, acknowledged already; false: there is none. Never waits, but for
  // an adapter's driver it is a system call.
  [[nodiscard]] bool take_event(ibv_async_event* event) const noexcept {
    if (ibv_get_async_event(adapter_.context, event) != 0) return false;
    ibv_ack_async_event(event);
    return true;
  }
  // Dynamically connected queue pairs can be made.
  [[nodiscard]] bool has_dc() const noexcept { return adapter_.has_dc; }
  [[nodiscard]] std::uint32_t mtu() const noexcept {  // bytes of the longest datagram
    return 128u << static_cast<unsigned>(adapter_.port.active_mtu);
  }
  // True when destinations must be named by GID (RoCE).
  [[nodiscard]] bool global_addressing() const noexcept {
    return adapter_.port.link_layer == IBV_LINK_LAYER_ETHERNET;
  }

 private:
  Device() = default;
  void choose_gid();

  Adapter adapter_;
  Pd pd_;
  std::string why_;
  bool virtual_ = false, simulated_ = false;
  std::uint8_t gid_index_ = 0;
  Gid gid_{};
  std::optional<std::uint64_t> rnr_at_open_;
};

}  // namespace turnout::verbs
