// SPDX-License-Identifier: BSD-3-Clause
/* Message-passing without rest, every byte verified: random sizes, tags, wildcards, probes, all
 * ways of waiting, and collectives now and then. Any MPI library, two processes or more.
 *
 *   mpi_stress [--messages N | --seconds S] [--seed N] [--most BYTES] [--stall S]
 *
 * Everything follows from the seed. In each round every rank sends some messages to others; all
 * know the whole plan, so a receiver knows what must come, in which order, and what is in it. How
 * messages are taken is their lane, a communicator each: by source and tag, by anything, by tag, by
 * probing. Ranks may be a round apart, so there are two sets of lanes.
 *
 * Ends with 1 when something was wrong, 3 when MPI answered an error, 4 when a round took longer
 * than
 * --stall; the last line of the first rank is that all was verified. */
#define _GNU_SOURCE
#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum Lane { kExact, kAnything, kAnySource, kProbed, kLanes };
enum { kRing = kLanes, kComms, kTags = 4, kMostOfRank = 16 };

typedef struct {
  uint64_t key; /* of what is in it */
  int to, tag, length;
  enum Lane lane;
  int synchronous, seen;
} Message;

typedef struct {
  int count;
  Message message[kMostOfRank];
} Sends;

typedef struct {
  unsigned char* data;
  int room, source, tag; /* as given to MPI */
  enum Lane lane;
  MPI_Status status;
} Receive;

static int rank, size, most = 1 << 20;
static uint64_t seed = 1;
static unsigned stall = 120;
static unsigned long round_number;
static const char* doing = "starting";
static MPI_Comm comms[2][kComms];
static Sends* plan; /* of this round, by rank */
static double began;

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t next_of(uint64_t* state) {
  *state += 0x9e3779b97f4a7c15u;
  return mix(*state);
}

static int below(uint64_t* state, int bound) {
  return (int)(next_of(state) % (uint64_t)bound);
}

/* Without MPI's help, which may be what failed: mpiexec ends the others. */
static _Noreturn void end_with(int code, const char* format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "rank %d, round %lu, %s, after %.1f s: %s (seed %llu)\n", rank, round_number,
          doing, MPI_Wtime() - began, text, (unsigned long long)seed);
  fflush(NULL);
  _exit(code);
}

static void check_call(int error, const char* call) {
  if (error == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  end_with(3, "MPI error of %.40s: %.400s", call, text);
}
#define MPI(call) check_call(call, #call)

static void on_alarm(int number) {
  (void)number;
  end_with(4, "nothing moves");
}

/* Small ones mostly; each power of two is as likely as the next within its group. */
static int random_length(uint64_t* state) {
  static const struct {
    int share, least, bits; /* per cent; 2^least to 2^(least+bits) */
  } groups[] = {{10, 0, 0}, {30, 0, 6}, {30, 6, 6}, {22, 12, 4}, {8, 16, 4}};
  int lot = below(state, 100), g = 0;
  while (lot >= groups[g].share) lot -= groups[g++].share;
  if (g == 0) return 0;
  const int unit = 1 << (groups[g].least + below(state, groups[g].bits));
  const int length = unit + below(state, unit);
  return length < most ? length : most;
}

static void make_plan(unsigned long round) {
  for (int from = 0; from < size; ++from) {
    uint64_t state = mix(mix(seed) ^ mix(round * (uint64_t)size + (uint64_t)from));
    Sends* sends = &plan[from];
    sends->count = below(&state, kMostOfRank + 1);
    for (int i = 0; i < sends->count; ++i) {
      Message* m = &sends->message[i];
      m->key = next_of(&state);
      m->to = (from + 1 + below(&state, size - 1)) % size;
      m->tag = below(&state, kTags);
      m->lane = (enum Lane)below(&state, kLanes);
      m->length = random_length(&state);
      m->synchronous = below(&state, 8) == 0;
      m->seen = 0;
    }
  }
}

static void fill(unsigned char* data, int length, uint64_t key) {
  int i = 0;
  for (; i + 8 <= length; i += 8) {
    const uint64_t word = mix(key + (uint64_t)i);
    memcpy(data + i, &word, 8);
  }
  const uint64_t word = mix(key + (uint64_t)i);
  memcpy(data + i, &word, (size_t)(length - i));
}

static int right_is(const unsigned char* data, int length, uint64_t key, int* where) {
  for (int i = 0; i < length; i += 8) {
    const uint64_t word = mix(key + (uint64_t)i);
    if (memcmp(data + i, &word, (size_t)(length - i < 8 ? length - i : 8)) != 0) {
      *where = i;
      return 0;
    }
  }
  return 1;
}

static unsigned char* allocate(int length) {
  unsigned char* data = malloc((size_t)length + 1);
  if (data == NULL) end_with(1, "no memory");
  data[length] = 0xa5;
  return data;
}

/* What must come next of this lane and source; where receives name tags, of this tag. */
static Message* expected(enum Lane lane, int source, int tag) {
  Sends* sends = &plan[source];
  for (int i = 0; i < sends->count; ++i) {
    Message* m = &sends->message[i];
    if (m->to != rank || m->lane != lane || m->seen) continue;
    if (m->tag == tag) return m;
    if (lane == kAnything || lane == kProbed) break;
  }
  end_with(1, "lane %d: a message of tag %d came from %d out of its order", (int)lane, tag, source);
}

static void verify(const unsigned char* data, int room, enum Lane lane, MPI_Status* status) {
  int length = -1, where = 0;
  MPI(MPI_Get_count(status, MPI_BYTE, &length));
  Message* m = expected(lane, status->MPI_SOURCE, status->MPI_TAG);
  if (m->length != length) {
    end_with(1, "lane %d: %d bytes from %d, not %d", (int)lane, length, status->MPI_SOURCE,
             m->length);
  }
  if (!right_is(data, length, m->key, &where)) {
    end_with(1, "lane %d: of %d bytes from %d those at %d are wrong", (int)lane, length,
             status->MPI_SOURCE, where);
  }
  if (data[room] != 0xa5) end_with(1, "lane %d: written beyond %d bytes", (int)lane, room);
  m->seen = 1;
}

/* The receives of all lanes but the probed one, in random order. Those of one source and tag are
 * posted in the order of their messages, as MPI matches them. */
static int make_receives(Receive* receives, uint64_t* state) {
  int count = 0;
  for (int from = 0; from < size; ++from) {
    for (int i = 0; i < plan[from].count; ++i) {
      const Message* m = &plan[from].message[i];
      if (m->to != rank || m->lane == kProbed) continue;
      Receive* r = &receives[count];
      r->lane = m->lane;
      r->room = m->length;
      r->source = m->lane == kExact ? from : MPI_ANY_SOURCE;
      r->tag = m->lane == kAnything ? MPI_ANY_TAG : m->tag;
      const int place = below(state, ++count);
      const Receive other = receives[place];
      receives[place] = *r;
      *r = other;
    }
  }
  for (int i = 0; i < count; ++i) {
    if (receives[i].lane != kExact) {
      receives[i].room = most;
      continue;
    }
    /* The lengths of the same source and tag, in the plan's order. */
    int before = 0;
    for (int j = 0; j < i; ++j) {
      before += receives[j].lane == kExact && receives[j].source == receives[i].source &&
                receives[j].tag == receives[i].tag;
    }
    const Sends* sends = &plan[receives[i].source];
    for (int k = 0; k < sends->count; ++k) {
      const Message* m = &sends->message[k];
      if (m->to == rank && m->lane == kExact && m->tag == receives[i].tag && before-- == 0) {
        receives[i].room = m->length;
        break;
      }
    }
  }
  return count;
}

static int probed_messages(void) {
  int count = 0;
  for (int from = 0; from < size; ++from) {
    for (int i = 0; i < plan[from].count; ++i) {
      count += plan[from].message[i].to == rank && plan[from].message[i].lane == kProbed;
    }
  }
  return count;
}

/* Takes one message by a probe; 0: none is here, and `wait` was not asked. */
static int take_probed(MPI_Comm comm, int wait, uint64_t* state) {
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  int flag = 1, length = 0;
  const int matched = below(state, 2);
  doing = "probing";
  if (matched && wait) MPI(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &message, &status));
  if (matched && !wait)
    MPI(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &message, &status));
  if (!matched && wait) MPI(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
  if (!matched && !wait) MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
  if (!flag) return 0;
  MPI(MPI_Get_count(&status, MPI_BYTE, &length));
  unsigned char* data = allocate(length);
  doing = "receiving what was probed";
  if (matched) {
    MPI(MPI_Mrecv(data, length, MPI_BYTE, &message, &status));
  } else {
    MPI(MPI_Recv(data, length, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, &status));
  }
  verify(data, length, kProbed, &status);
  free(data);
  return 1;
}

/* requests[i] is of receive i while i < receive_count. */
static void finish(MPI_Request* requests, int count, Receive* receives, int receive_count,
                   uint64_t* state) {
  static MPI_Status statuses[kMostOfRank * 64];
  static int indices[kMostOfRank * 64];
  doing = "waiting for requests";
  for (;;) {
    MPI_Status status;
    int index = MPI_UNDEFINED, flag = 0, done = 0;
    switch (below(state, 4)) {
      case 0:
        MPI(MPI_Waitany(count, requests, &index, &status));
        if (index == MPI_UNDEFINED) return;
        if (index < receive_count) receives[index].status = status;
        break;
      case 1:
        MPI(MPI_Testany(count, requests, &index, &flag, &status));
        if (flag && index == MPI_UNDEFINED) return;
        if (flag && index < receive_count) receives[index].status = status;
        break;
      case 2:
        MPI(MPI_Waitsome(count, requests, &done, indices, statuses));
        if (done == MPI_UNDEFINED) return;
        for (int i = 0; i < done; ++i) {
          if (indices[i] < receive_count) receives[indices[i]].status = statuses[i];
        }
        break;
      default:
        if (below(state, 4) != 0) break;
        for (int i = 0; i < count; ++i) {
          if (requests[i] == MPI_REQUEST_NULL) continue;
          MPI(MPI_Wait(&requests[i], &status));
          if (i < receive_count) receives[i].status = status;
        }
        return;
    }
  }
}

static void exchange(MPI_Comm* lanes) {
  static Receive receives[kMostOfRank * 64];
  static MPI_Request requests[kMostOfRank * 65];
  unsigned char* out[kMostOfRank];
  /* What only this rank decides. */
  uint64_t state = mix(seed ^ mix(round_number)) + (uint64_t)rank;
  const Sends* sends = &plan[rank];
  const int receive_count = make_receives(receives, &state);
  int probed = probed_messages(), posted = 0, sent = 0;
  const int eagerness = below(&state, 4); /* 0: receives are posted when all was sent */
  doing = "posting";
  while (posted < receive_count || sent < sends->count) {
    if (posted < receive_count && (sent == sends->count || below(&state, 4) < eagerness)) {
      Receive* r = &receives[posted];
      r->data = allocate(r->room);
      MPI(MPI_Irecv(r->data, r->room, MPI_BYTE, r->source, r->tag, lanes[r->lane],
                    &requests[posted]));
      ++posted;
    } else if (sent < sends->count) {
      const Message* m = &sends->message[sent];
      out[sent] = allocate(m->length);
      fill(out[sent], m->length, m->key);
      MPI_Request* request = &requests[receive_count + sent];
      if (m->synchronous) {
        MPI(MPI_Issend(out[sent], m->length, MPI_BYTE, m->to, m->tag, lanes[m->lane], request));
      } else {
        MPI(MPI_Isend(out[sent], m->length, MPI_BYTE, m->to, m->tag, lanes[m->lane], request));
      }
      ++sent;
    }
    if (probed > 0 && below(&state, 4) == 0) probed -= take_probed(lanes[kProbed], 0, &state);
    doing = "posting";
  }
  /* Large messages end when they are taken, so who probes must do so before it waits for others. */
  while (probed > 0) probed -= take_probed(lanes[kProbed], below(&state, 2), &state);
  finish(requests, receive_count + sent, receives, receive_count, &state);
  for (int i = 0; i < receive_count; ++i) {
    verify(receives[i].data, receives[i].room, receives[i].lane, &receives[i].status);
    free(receives[i].data);
  }
  for (int i = 0; i < sent; ++i) free(out[i]);
}

/* Everybody to the one `shift` further on, at once. */
static void shift_all(MPI_Comm comm, uint64_t* state) {
  const int shift = 1 + below(state, size - 1);
  const int to = (rank + shift) % size, from = (rank + size - shift) % size;
  const uint64_t key = next_of(state);
  int mine = 0, theirs = 0, got = 0, where = 0;
  for (int i = 0; i < size; ++i) {
    const int length = random_length(state);
    if (i == rank) mine = length;
    if (i == from) theirs = length;
  }
  unsigned char *out = allocate(mine), *in = allocate(theirs);
  fill(out, mine, key + (uint64_t)rank);
  MPI_Status status;
  doing = "sendrecv";
  MPI(MPI_Sendrecv(out, mine, MPI_BYTE, to, 9, in, theirs, MPI_BYTE, from, 9, comm, &status));
  MPI(MPI_Get_count(&status, MPI_BYTE, &got));
  if (got != theirs || !right_is(in, theirs, key + (uint64_t)from, &where)) {
    end_with(1, "%d bytes from %d, not %d, or wrong at %d", got, from, theirs, where);
  }
  free(out);
  free(in);
}

static void collective(MPI_Comm comm, uint64_t* state) {
  const uint64_t key = next_of(state);
  const int kind = below(state, 3), length = random_length(state), root = below(state, size);
  int where = 0;
  if (kind == 0) {
    doing = "bcast";
    unsigned char* data = allocate(length);
    if (rank == root) fill(data, length, key);
    MPI(MPI_Bcast(data, length, MPI_BYTE, root, comm));
    if (!right_is(data, length, key, &where)) end_with(1, "%d bytes, wrong at %d", length, where);
    free(data);
  } else if (kind == 1) {
    doing = "allreduce";
    const int n = length / 8 + 1;
    uint64_t* data = malloc((size_t)n * 8);
    if (data == NULL) end_with(1, "no memory");
    for (int i = 0; i < n; ++i) data[i] = mix(key + (uint64_t)i) * (uint64_t)(rank + 1);
    MPI(MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_UINT64_T, MPI_SUM, comm));
    const uint64_t factor = (uint64_t)size * (uint64_t)(size + 1) / 2;
    for (int i = 0; i < n; ++i) {
      if (data[i] != mix(key + (uint64_t)i) * factor) end_with(1, "word %d of %d is wrong", i, n);
    }
    free(data);
  } else {
    doing = "alltoall";
    const int each = length / size;
    unsigned char *out = allocate(each * size), *in = allocate(each * size);
    for (int i = 0; i < size; ++i) fill(out + i * each, each, key + (uint64_t)(rank * size + i));
    MPI(MPI_Alltoall(out, each, MPI_BYTE, in, each, MPI_BYTE, comm));
    for (int i = 0; i < size; ++i) {
      if (!right_is(in + i * each, each, key + (uint64_t)(i * size + rank), &where)) {
        end_with(1, "%d bytes from %d, wrong at %d", each, i, where);
      }
    }
    free(out);
    free(in);
  }
}

static unsigned long number_of(const char* text) {
  char* end = NULL;
  const unsigned long number = strtoul(text, &end, 0);
  if (end == text || *end != '\0') end_with(1, "not a number: %.100s", text);
  return number;
}

int main(int argc, char** argv) {
  unsigned long messages = 0, done = 0;
  double seconds = 0;
  MPI_Init(&argc, &argv);
  began = MPI_Wtime();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 1; i + 1 < argc; i += 2) {
    const unsigned long number = number_of(argv[i + 1]);
    if (strcmp(argv[i], "--messages") == 0) messages = number;
    if (strcmp(argv[i], "--seconds") == 0) seconds = (double)number;
    if (strcmp(argv[i], "--seed") == 0) seed = number;
    if (strcmp(argv[i], "--most") == 0) most = (int)number;
    if (strcmp(argv[i], "--stall") == 0) stall = (unsigned)number;
  }
  if (messages == 0 && seconds <= 0) messages = 10000;
  if (size < 2 || size > 64) end_with(1, "2 to 64 processes, please");
  plan = calloc((size_t)size, sizeof *plan);
  if (plan == NULL) end_with(1, "no memory");
  signal(SIGALRM, on_alarm);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  alarm(stall);
  for (int i = 0; i < 2 * kComms; ++i)
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i / kComms][i % kComms]));
  if (rank == 0) {
    printf("%d ranks, seed %llu\n", size, (unsigned long long)seed);
    fflush(stdout);
  }
  /* Each round's vote on whether it was the last is counted while the next one runs. */
  MPI_Request vote[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int mine[2] = {0, 0}, all[2] = {0, 0};
  double told = began;
  for (;; ++round_number) {
    const int side = (int)(round_number % 2);
    alarm(stall);
    doing = "waiting for the round before the last";
    MPI(MPI_Wait(&vote[side], MPI_STATUS_IGNORE));
    if (all[side]) break;
    make_plan(round_number);
    exchange(comms[side]);
    uint64_t state = mix(mix(~seed) ^ round_number);
    if (below(&state, 3) == 0) shift_all(comms[side][kRing], &state);
    if (below(&state, 5) == 0) collective(comms[side][kRing], &state);
    for (int from = 0; from < size; ++from) done += (unsigned long)plan[from].count;
    const double now = MPI_Wtime();
    mine[side] = (messages > 0 && done >= messages) || (seconds > 0 && now - began >= seconds);
    doing = "voting";
    MPI(MPI_Iallreduce(&mine[side], &all[side], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &vote[side]));
    if (rank == 0 && now - told >= 1) {
      printf("%.0f s: %lu messages\n", now - began, done);
      fflush(stdout);
      told = now;
    }
  }
  doing = "ending";
  MPI(MPI_Waitall(2, vote, MPI_STATUSES_IGNORE));
  MPI(MPI_Barrier(MPI_COMM_WORLD));
  for (int i = 0; i < 2 * kComms; ++i) {
    int flag = 0;
    MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i / kComms][i % kComms], &flag,
                   MPI_STATUS_IGNORE));
    if (flag) end_with(1, "a message more than was sent");
  }
  const double took = MPI_Wtime() - began;
  for (int i = 0; i < 2 * kComms; ++i) MPI(MPI_Comm_free(&comms[i / kComms][i % kComms]));
  alarm(stall);
  MPI_Finalize();
  if (rank == 0) {
    printf("%lu messages in %lu rounds in %.1f s, all received and verified\n", done, round_number,
           took);
  }
  return 0;
}
