// SPDX-License-Identifier: BSD-3-Clause
// unchecked_send: sends messages over a reliable connection and counts those that arrive. It has a
// mistake that only a fault shows: docs/faults.md.
//
//     gcc -o unchecked_send unchecked_send.c -libverbs
//     gcc -DCHECKED -o checked_send unchecked_send.c -libverbs      without the mistake
//     turnout verbs -- ./unchecked_send
//
// Both ends are in one process, so that the program stays small.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMessages = 100, kBytes = 64 };

static void* need(void* object, const char* what) {
  if (object == NULL) {
    perror(what);
    exit(1);
  }
  return object;
}

static struct ibv_qp* create_qp(struct ibv_pd* pd, struct ibv_cq* cq) {
  struct ibv_qp_init_attr attr = {.send_cq = cq,
                                  .recv_cq = cq,
                                  .cap = {kMessages, kMessages, 1, 1, 0},
                                  .qp_type = IBV_QPT_RC,
                                  .sq_sig_all = 1};
  return need(ibv_create_qp(pd, &attr), "ibv_create_qp");
}

static void connect_qp(struct ibv_qp* qp, uint32_t peer, uint16_t lid) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = peer,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 12,
                            .ah_attr = {.dlid = lid, .port_num = 1}};
  struct ibv_qp_attr rts = {
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  if (ibv_modify_qp(qp, &init,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0 ||
      ibv_modify_qp(qp, &rtr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0 ||
      ibv_modify_qp(qp, &rts,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    perror("ibv_modify_qp");
    exit(1);
  }
}

int main(void) {
  static char sent[kBytes], received[kMessages][kBytes];
  struct ibv_device** devices = need(ibv_get_device_list(NULL), "ibv_get_device_list");
  struct ibv_context* context = need(ibv_open_device(devices[0]), "ibv_open_device");
  struct ibv_pd* pd = need(ibv_alloc_pd(context), "ibv_alloc_pd");
  struct ibv_cq* send_cq =
      need(ibv_create_cq(context, 2 * kMessages, NULL, NULL, 0), "ibv_create_cq");
  struct ibv_cq* recv_cq =
      need(ibv_create_cq(context, 2 * kMessages, NULL, NULL, 0), "ibv_create_cq");
  struct ibv_mr* from = need(ibv_reg_mr(pd, sent, sizeof sent, 0), "ibv_reg_mr");
  struct ibv_mr* to =
      need(ibv_reg_mr(pd, received, sizeof received, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
  struct ibv_qp *sender = create_qp(pd, send_cq), *receiver = create_qp(pd, recv_cq);
  struct ibv_port_attr port;
  ibv_query_port(context, 1, &port);
  connect_qp(sender, receiver->qp_num, port.lid);
  connect_qp(receiver, sender->qp_num, port.lid);

  memset(sent, 'x', sizeof sent);
  for (int i = 0; i < kMessages; ++i) {
    struct ibv_sge place = {(uintptr_t)received[i], kBytes, to->lkey};
    struct ibv_recv_wr receive = {.sg_list = &place, .num_sge = 1}, *bad_receive;
    struct ibv_sge data = {(uintptr_t)sent, kBytes, from->lkey};
    struct ibv_send_wr send = {.wr_id = (uint64_t)i,
                               .sg_list = &data,
                               .num_sge = 1,
                               .opcode = IBV_WR_SEND},
                       *bad_send;
    if (ibv_post_recv(receiver, &receive, &bad_receive) != 0 ||
        ibv_post_send(sender, &send, &bad_send) != 0) {
      printf("posting message %d failed\n", i);
      return 1;
    }
  }

  for (int done = 0; done < kMessages;) {
    struct ibv_wc wc;
    const int n = ibv_poll_cq(send_cq, 1, &wc);
    if (n < 0) return 1;
    if (n == 0) continue;
#ifdef CHECKED
    if (wc.status != IBV_WC_SUCCESS) {
      printf("message %d failed: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
      return 1;
    }
#endif
    ++done;  // unchecked: a completion only says that the request has ended
  }
  printf("%d messages sent\n", kMessages);

  int whole = 0;
  for (int i = 0; i < kMessages; ++i) whole += memcmp(received[i], sent, kBytes) == 0;
  printf("%d messages arrived\n", whole);
  return 0;
}
