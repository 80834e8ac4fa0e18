// SPDX-License-Identifier: BSD-3-Clause
// Devices and contexts: listing, opening, closing.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/settings.h"
#include "hca/abi/verbs.h"
#include "hca/device/attributes.h"
#include "hca/device/fault_plan.h"
#include "hca/device/identity.h"
#include "hca/device/open_adapter.h"

using namespace turnout;
using namespace turnout::hca;

namespace {

// The number a kernel would give the adapter: the first that no real one has. Under `turnout verbs`
// the folder of that number is there, and says that it is ours.
unsigned verbs_number() {
  for (unsigned number = 0;; ++number) {
    char path[64];
    std::snprintf(path, sizeof path, "/sys/class/infiniband_verbs/uverbs%u/ibdev", number);
    const Descriptor fd(open(path, O_RDONLY | O_CLOEXEC));
    if (!fd) return number;
    char name[IBV_SYSFS_NAME_MAX] = {};
    const ssize_t size = read(fd.get(), name, sizeof name - 1);
    name[std::strcspn(name, "\n")] = '\0';
    if (size > 0 && std::strcmp(name, kDeviceName) == 0) return number;
  }
}

// The names by which UCX and others look for what a driver has in /dev and /sys.
void name(ibv_device* device) {
  const unsigned number = verbs_number();
  std::snprintf(device->name, sizeof device->name, "%s", kDeviceName);
  std::snprintf(device->dev_name, sizeof device->dev_name, "uverbs%u", number);
  std::snprintf(device->dev_path, sizeof device->dev_path, "/sys/class/infiniband_verbs/uverbs%u",
                number);
  std::snprintf(device->ibdev_path, sizeof device->ibdev_path, "/sys/class/infiniband/%s",
                kDeviceName);
}

Device& the_device() {
  static Device* device = [] {
    auto* d = new Device{};
    d->verbs.node_type = IBV_NODE_CA;
    d->verbs.transport_type = IBV_TRANSPORT_IB;
    name(&d->verbs);
    d->magic = kObjectMagic;
    d->mlx5 = &kMlx5Ops;
    d->guid = port_guid();
    return d;
  }();
  return *device;
}

// A kernel's cmd_fd stands for the open device, and another process that is given it can import the
// device. Ours is a file that says where that is: this, the process, the fabric.
constexpr char kCommandFile[] = "turnout-uverbs %d %s\n";

int make_command_file(const std::string& fabric) {
  Descriptor fd(memfd_create("turnout-uverbs", MFD_CLOEXEC));
  const bool written = fd && dprintf(fd.get(), kCommandFile, getpid(), fabric.c_str()) >= 0;
  return written ? fd.release() : -1;
}

// False: not a file of ours.
bool read_command_file(int fd, int& process, std::string& fabric) {
  char text[512] = {};
  char name[sizeof text] = {};
  const ssize_t n = pread(fd, text, sizeof text - 1, 0);
  if (n <= 0 || text[n - 1] != '\n') return false;
  if (std::sscanf(text, "turnout-uverbs %d %511[^\n]", &process, name) != 2) return false;
  fabric = name;
  return process > 0;
}

// The op tables, through which verbs.h's inline functions call.
void fill_ops(Context& context) {
  verbs_context& v = context.verbs;
  v.query_port = query_port;
  v.query_device_ex = query_device_ex;
  v.query_rt_values = query_rt_values;
  v.create_cq_ex = create_cq_ex;
  v.modify_cq = modify_cq;
  v.create_qp_ex = create_qp_ex;
  v.create_srq_ex = create_srq_ex;
  v.get_srq_num = get_srq_num;
  if (identity().xrc) {
    v.open_xrcd = open_xrcd;
    v.close_xrcd = close_xrcd;
    v.open_qp = open_qp;
  }
  v.alloc_td = alloc_td;
  v.dealloc_td = dealloc_td;
  v.alloc_parent_domain = alloc_parent_domain;
  v.advise_mr = advise_mr;
  v.alloc_null_mr = alloc_null_mr;
  v.alloc_dm = alloc_dm;
  v.free_dm = free_dm;
  v.reg_dm_mr = reg_dm_mr;
  ibv_context_ops& o = v.context.ops;
  o.poll_cq = poll_cq;
  o.req_notify_cq = req_notify_cq;
  o.post_send = post_send;
  o.post_recv = post_recv;
  o.post_srq_recv = post_srq_recv;
  o.alloc_mw = alloc_mw;
  o.bind_mw = bind_mw;
  o.dealloc_mw = dealloc_mw;
  // Left null, which verbs.h answers with EOPNOTSUPP: flows, counters, work queues, tag matching.
}

// fabric: empty for that of the settings. command: the file of a device that is imported, or -1.
ibv_context* open_context(ibv_device* device, const std::string& fabric, int command,
                          int exporter) {
  auto context = std::make_unique<Context>();
  context->private_part = {kObjectMagic, &kMlx5Ops};
  ibv_context& c = context->verbs.context;
  c.device = device;
  c.cmd_fd = command;
  c.async_fd = -1;
  c.num_comp_vectors = kCompletionVectors;
  pthread_mutex_init(&c.mutex, nullptr);
  c.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context->verbs.sz = sizeof(verbs_context);
  context->verbs.priv = reinterpret_cast<verbs_ex_private*>(&context->private_part);
  const Result<std::string> opened = open_adapter(*context, fabric);
  if (!opened) {
    const Status status = opened.status();
    TURNOUT_LOG(hca, error, "opening the virtual adapter failed: {}: {}", kDeviceName,
                status.text());
    char* text = reinterpret_cast<Device*>(device)->last_error;
    std::snprintf(text, sizeof Device::last_error, "%s", status.text().c_str());
    errno = status.sys_errno() != 0 ? status.sys_errno() : EINVAL;
    return nullptr;
  }
  if (!context->virtual_clock) {
    context->exporter = exporter != 0 ? exporter : getpid();
    if (command < 0) c.cmd_fd = make_command_file(opened.value());
  }
  fill_ops(*context);
  return &context.release()->verbs.context;
}

}  // namespace

TURNOUT_EXPORT ibv_device** ibv_get_device_list(int* num_devices) {
  auto** list = static_cast<ibv_device**>(std::calloc(2, sizeof(ibv_device*)));
  if (num_devices != nullptr) *num_devices = list != nullptr ? 1 : 0;
  if (list == nullptr) return failed(ENOMEM);
  list[0] = &the_device().verbs;
  return list;
}

TURNOUT_EXPORT void ibv_free_device_list(ibv_device** list) {
  std::free(list);
}

TURNOUT_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

TURNOUT_EXPORT int ibv_get_device_index(ibv_device*) {
  return -1;
}  // no kernel device behind it

TURNOUT_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  return htobe64(reinterpret_cast<Device*>(device)->guid);
}

TURNOUT_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  return open_context(device, {}, -1, 0);
}

// The context owns the descriptor from here on, if it comes to be.
TURNOUT_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  int process = 0;
  std::string fabric;
  if (has_virtual_clock()) return failed(EOPNOTSUPP);
  if (!read_command_file(cmd_fd, process, fabric)) return failed(EINVAL);
  return open_context(&the_device().verbs, fabric, cmd_fd, process);
}

TURNOUT_EXPORT int ibv_close_device(ibv_context* context) {
  Context& c = context_of(context);
  if (c.pid == getpid() && c.users.load() != 0) {
    // ibv_close_device(3) leaves it to the program to release what it made in the context, and does
    // not fail: perftest and others leak a queue. What is left stays until the process ends.
    TURNOUT_LOG(hca, info,
                "ibv_close_device has no effect: {} objects are still open; destroy them first",
                c.users.load());
    return 0;
  }
  if (context->cmd_fd >= 0 && c.pid == getpid()) ::close(context->cmd_fd);
  c.objects->close(c);
  delete &c;
  return 0;
}

// What is wrong with a plan of faults (TURNOUT_FAULT); null: nothing. The text is the calling
// thread's until it asks again.
TURNOUT_EXPORT const char* turnout_fault_error(const char* plan) {
  thread_local std::string text;
  text = FaultPlan::parse(plan).status().text();
  return text.empty() ? nullptr : text.c_str();
}
