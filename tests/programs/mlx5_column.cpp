// SPDX-License-Identifier: BSD-3-Clause
// mlx5_column: a process writes a column of its matrix into another's, through memory keys of
// mlx5dv, and reads it back otherwise. As an application of the system's libmlx5 would do it:
//
//     turnout verbs --mlx5 -- mlx5_column [ROWS [COLUMNS]]
//
// Forks once; the two tell each other their numbers and keys over a socket. Prints what was done
// and ends with 1 at the first thing that is wrong.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "mlx5_column failed: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
void need(bool holds, const char* what) {
  if (!holds) fail(what);
}

struct Told {
  std::uint32_t qpn, lid, column, contiguous;
  std::uint64_t address;
};

class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {}
  template <class T>
  T exchange(const T& mine) const {
    T theirs{};
    need(write(fd_, &mine, sizeof mine) == sizeof mine, "write to the peer");
    need(recv(fd_, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs, "read from the peer");
    return theirs;
  }
  void meet() const { (void)exchange('m'); }

 private:
  int fd_;
};

class Column {
 public:
  Column(const Peer& peer, std::uint32_t rows, std::uint32_t columns, double first)
      : peer_(peer), rows_(rows), columns_(columns), matrix_(std::size_t{rows} * columns) {
    for (std::size_t i = 0; i < matrix_.size(); ++i) matrix_[i] = first + static_cast<double>(i);
    open();
    make_queue_pair();
    Told mine{qp_->qp_num, 0, column_->rkey, mr_->rkey,
              reinterpret_cast<std::uint64_t>(matrix_.data())};
    ibv_port_attr port{};
    need(ibv_query_port(context_, 1, &port) == 0, "ibv_query_port");
    mine.lid = port.lid;
    theirs_ = peer_.exchange(mine);
    connect();
  }
  ~Column() {
    ibv_destroy_qp(qp_);
    mlx5dv_destroy_mkey(column_);
    ibv_dereg_mr(mr_);
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  [[nodiscard]] double& at(std::uint32_t row, std::uint32_t column) {
    return matrix_[std::size_t{row} * columns_ + column];
  }
  [[nodiscard]] std::uint32_t bytes() const { return rows_ * std::uint32_t{sizeof(double)}; }
  // The key stands for this column of the matrix. How the request ended.
  ibv_wc_status lay_out(std::uint32_t column) {
    // A stride has 16 bits, of which a row may take more: then every row is an entry of its own.
    const std::uint64_t row_bytes = std::uint64_t{columns_} * sizeof(double);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp_);
    mlx5dv_qp_ex* const dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    mlx5dv_mkey_conf_attr attributes{};
    mlx5dv_wr_mkey_configure(dv, column_, 2, &attributes);
    mlx5dv_wr_set_mkey_access_flags(dv, kRights);
    const auto first = reinterpret_cast<std::uint64_t>(&at(0, column));
    if (row_bytes <= UINT16_MAX) {
      const mlx5dv_mr_interleaved data{
          first, sizeof(double), static_cast<std::uint32_t>(row_bytes - sizeof(double)), mr_->lkey};
      mlx5dv_wr_set_mkey_layout_interleaved(dv, rows_, 1, &data);
    } else {
      std::vector<ibv_sge> pieces;
      for (std::uint32_t row = 0; row < rows_; ++row) {
        pieces.push_back({first + row * row_bytes, sizeof(double), mr_->lkey});
      }
      mlx5dv_wr_set_mkey_layout_list(dv, static_cast<std::uint16_t>(rows_), pieces.data());
    }
    const int error = ibv_wr_complete(ex);
    if (error != 0) {
      errno = error;
      fail("ibv_wr_complete");
    }
    return wait(static_cast<ibv_wc_opcode>(MLX5DV_WC_UMR));
  }
  // Moves bytes of the column, from `from` on, to or from the peer.
  ibv_wc_status move(ibv_wr_opcode opcode, std::uint64_t remote, std::uint32_t rkey) {
    ibv_sge sge{0, bytes(), column_->lkey};  // such a key's addresses begin at 0
    return post(opcode, sge, remote, rkey);
  }
  ibv_wc_status read_contiguous(double* to) {
    staging_ = ibv_reg_mr(pd_, to, bytes(), int{IBV_ACCESS_LOCAL_WRITE});
    need(staging_ != nullptr, "ibv_reg_mr");
    ibv_sge sge{reinterpret_cast<std::uint64_t>(to), bytes(), staging_->lkey};
    const ibv_wc_status status = post(IBV_WR_RDMA_READ, sge, 0, theirs_.column);
    ibv_dereg_mr(staging_);
    return status;
  }
  ibv_wc_status invalidate() {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate_rkey = column_->rkey;
    wr.send_flags = IBV_SEND_SIGNALED;
    need(ibv_post_send(qp_, &wr, &bad) == 0, "ibv_post_send of an invalidation");
    return wait(IBV_WC_LOCAL_INV);
  }
  [[nodiscard]] const Told& theirs() const { return theirs_; }

 private:
  static constexpr unsigned kRights =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  static constexpr std::uint32_t kInline = 512;

  void open() {
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    need(devices != nullptr && count > 0, "ibv_get_device_list: no device");
    need(mlx5dv_is_supported(devices[0]), "mlx5dv_is_supported");
    mlx5dv_context_attr attributes{};
    attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    context_ = mlx5dv_open_device(devices[0], &attributes);
    need(context_ != nullptr, "mlx5dv_open_device");
    ibv_free_device_list(devices);
    pd_ = ibv_alloc_pd(context_);
    need(pd_ != nullptr, "ibv_alloc_pd");
    cq_ = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
    need(cq_ != nullptr, "ibv_create_cq");
    mr_ = ibv_reg_mr(pd_, matrix_.data(), matrix_.size() * sizeof(double), kRights);
    need(mr_ != nullptr, "ibv_reg_mr");
    mlx5dv_mkey_init_attr key{};
    key.pd = pd_;
    key.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
    key.max_entries = 32;
    column_ = mlx5dv_create_mkey(&key);
    need(column_ != nullptr, "mlx5dv_create_mkey");
  }
  void make_queue_pair() {
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = attributes.recv_cq = cq_;
    attributes.cap = {8, 1, 1, 1, kInline};
    attributes.pd = pd_;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags =
        IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    dv.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    qp_ = mlx5dv_create_qp(context_, &attributes, &dv);
    need(qp_ != nullptr, "mlx5dv_create_qp");
  }
  void connect() {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    need(ibv_modify_qp(qp_, &a,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
         "ibv_modify_qp to INIT");
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = theirs_.qpn;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 12;
    a.ah_attr.dlid = static_cast<std::uint16_t>(theirs_.lid);
    a.ah_attr.port_num = 1;
    need(ibv_modify_qp(qp_, &a,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
         "ibv_modify_qp to RTR");
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    need(ibv_modify_qp(qp_, &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
         "ibv_modify_qp to RTS");
  }
  ibv_wc_status post(ibv_wr_opcode opcode, ibv_sge& sge, std::uint64_t remote, std::uint32_t rkey) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {remote, rkey};
    need(ibv_post_send(qp_, &wr, &bad) == 0, "ibv_post_send");
    return wait(opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
  }
  ibv_wc_status wait(ibv_wc_opcode expected) {
    ibv_wc wc{};
    int n = 0;
    while ((n = ibv_poll_cq(cq_, 1, &wc)) == 0) {
    }
    need(n == 1, "ibv_poll_cq");
    if (wc.status == IBV_WC_SUCCESS) need(wc.opcode == expected, "the opcode of a completion");
    return wc.status;
  }

  const Peer& peer_;
  std::uint32_t rows_, columns_;
  std::vector<double> matrix_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr *mr_ = nullptr, *staging_ = nullptr;
  mlx5dv_mkey* column_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Told theirs_{};
};

void ended(ibv_wc_status status, const char* what, ibv_wc_status expected = IBV_WC_SUCCESS) {
  if (status == expected) return;
  std::fprintf(stderr, "mlx5_column failed: %s: %s instead of %s\n", what,
               ibv_wc_status_str(status), ibv_wc_status_str(expected));
  std::exit(1);
}

// The one that asks.
void active(const Peer& peer, std::uint32_t rows, std::uint32_t columns) {
  Column c(peer, rows, columns, 1e6);
  const std::uint32_t mine = columns / 3;
  ended(c.lay_out(mine), "laying out a column");
  peer.meet();  // theirs is laid out, too
  // Column to column.
  ended(c.move(IBV_WR_RDMA_WRITE, 0, c.theirs().column), "writing a column into a column");
  // Column to a row: the peer's memory as it is.
  ended(c.move(IBV_WR_RDMA_WRITE, c.theirs().address, c.theirs().contiguous),
        "writing a column into contiguous memory");
  peer.meet();
  peer.meet();  // the peer has looked, and has changed its column
  std::vector<double> row(rows);
  ended(c.read_contiguous(row.data()), "reading a column");
  for (std::uint32_t i = 0; i < rows; ++i)
    need(row[i] == -static_cast<double>(i), "the column that was read");
  peer.meet();
  peer.meet();  // the peer's key is invalid
  ended(c.move(IBV_WR_RDMA_WRITE, 0, c.theirs().column), "writing to a key that was invalidated",
        IBV_WC_REM_ACCESS_ERR);
  std::printf("mlx5_column: a column of %u rows of %u went there and back\n", rows, columns);
  peer.meet();
}

void passive(const Peer& peer, std::uint32_t rows, std::uint32_t columns) {
  Column c(peer, rows, columns, 0);
  const std::uint32_t mine = columns / 2;
  ended(c.lay_out(mine), "laying out a column");
  peer.meet();
  peer.meet();  // two columns have come
  for (std::uint32_t row = 0; row < rows; ++row) {
    const double sent = 1e6 + static_cast<double>(std::uint64_t{row} * columns + columns / 3);
    // Where the contiguous one lies it has overwritten what was there.
    const std::uint64_t index = std::uint64_t{row} * columns + mine;
    if (index >= rows) need(c.at(row, mine) == sent, "the column that was written");
    const std::uint64_t beside = index + 1;
    if (mine + 1 < columns && beside >= rows) {
      need(c.at(row, mine + 1) == static_cast<double>(beside), "what is beside the column");
    }
    need((&c.at(0, 0))[row] == sent, "the contiguous column that was written");
  }
  for (std::uint32_t row = 0; row < rows; ++row) c.at(row, mine) = -static_cast<double>(row);
  peer.meet();
  peer.meet();  // it was read
  ended(c.invalidate(), "invalidating the key");
  peer.meet();
  peer.meet();
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint32_t otherwise) {
    return i < argc ? static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)) : otherwise;
  };
  const std::uint32_t rows = number(1, 1000), columns = number(2, 64);
  if (rows == 0 || columns < 3 || rows > 1U << 20 || columns > 1U << 20) {
    std::fprintf(stderr,
                 "usage: mlx5_column [ROWS [COLUMNS]]: 1 to 2^20 rows, or 32 if they are longer "
                 "than 64 KiB; at least 3 columns\n");
    return 2;
  }
  int ends[2];
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  const pid_t child = fork();
  need(child >= 0, "fork");
  if (child == 0) {
    close(ends[0]);
    passive(Peer(ends[1]), rows, columns);
    return 0;
  }
  close(ends[1]);
  active(Peer(ends[0]), rows, columns);
  int status = 0;
  need(waitpid(child, &status, 0) == child, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
