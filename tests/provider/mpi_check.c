// SPDX-License-Identifier: BSD-3-Clause
/* An MPI program that uses what MPI libraries ask of a libfabric provider, with checks: sizes over
 * every protocol, any-source and probes, matched probes, synchronous sends, cancel, persistent
 * requests, one-sided windows, memory that comes and goes, collectives. Plain C and MPI-3, for any
 * MPI library and any number of processes. */
#define _DEFAULT_SOURCE /* madvise, MAP_ANONYMOUS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int rank, size;

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                  \
    }                                                                                \
  } while (0)

static void fill(unsigned char* data, int n, int seed) {
  for (int i = 0; i < n; ++i) data[i] = (unsigned char)(seed * 131 + i * 7 + (i >> 8));
}

static int right_is(const unsigned char* data, int n, int seed) {
  for (int i = 0; i < n; ++i) {
    if (data[i] != (unsigned char)(seed * 131 + i * 7 + (i >> 8))) return 0;
  }
  return 1;
}

static const int sizes[] = {0, 1, 8, 192, 193, 4000, 4096, 16384, 65536, 262147, 1 << 20, 3000001};
#define SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

/* Everybody sends to everybody, all at once, in every size. */
static void all_pairs(void) {
  for (int s = 0; s < SIZES; ++s) {
    const int n = sizes[s];
    unsigned char* out = malloc((size_t)n + 1);
    unsigned char* in = malloc(((size_t)n + 1) * (size_t)size);
    MPI_Request* requests = malloc(2 * (size_t)size * sizeof(*requests));
    fill(out, n, rank + 3 * s);
    for (int p = 0; p < size; ++p) {
      MPI_Irecv(in + (size_t)p * ((size_t)n + 1), n, MPI_BYTE, p, s, MPI_COMM_WORLD, &requests[p]);
    }
    for (int p = 0; p < size; ++p) {
      MPI_Isend(out, n, MPI_BYTE, p, s, MPI_COMM_WORLD, &requests[size + p]);
    }
    MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
    for (int p = 0; p < size; ++p) {
      CHECK(right_is(in + (size_t)p * ((size_t)n + 1), n, p + 3 * s));
    }
    free(requests);
    free(in);
    free(out);
  }
}

/* Rank 0 takes from anybody, by probing, in the order of each sender. */
static void any_source(void) {
  enum { kEach = 200 };
  if (rank != 0) {
    unsigned char out[5000];
    for (int i = 0; i < kEach; ++i) {
      const int n = (i * 53) % (int)sizeof(out);
      fill(out, n, rank + i);
      MPI_Send(out, n, MPI_BYTE, 0, i, MPI_COMM_WORLD);
    }
    return;
  }
  int* next = calloc((size_t)size, sizeof(*next));
  unsigned char in[5000];
  for (int i = 0; i < kEach * (size - 1); ++i) {
    MPI_Status status, got;
    int n = -1;
    if (i % 2 == 0) {
      MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      MPI_Get_count(&status, MPI_BYTE, &n);
      MPI_Recv(in, n, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &got);
    } else {
      MPI_Recv(in, sizeof(in), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &got);
      MPI_Get_count(&got, MPI_BYTE, &n);
    }
    const int from = got.MPI_SOURCE;
    CHECK(got.MPI_TAG == next[from]);
    CHECK(n == (next[from] * 53) % (int)sizeof(in));
    CHECK(right_is(in, n, from + next[from]));
    ++next[from];
  }
  free(next);
}

static void matched_probes(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  MPI_Request request[2];
  unsigned char* big = malloc(300000);
  unsigned char* in = malloc(300000);
  char small[4] = "abc", got[4] = "";
  MPI_Status status;
  MPI_Message message;
  int flag = 0, n = 0;
  MPI_Improbe(from, 999, MPI_COMM_WORLD, &flag, &message, &status);
  CHECK(!flag);
  fill(big, 300000, rank);
  MPI_Isend(small, 4, MPI_CHAR, to, 50, MPI_COMM_WORLD, &request[0]);
  MPI_Isend(big, 300000, MPI_BYTE, to, 51, MPI_COMM_WORLD, &request[1]);
  MPI_Mprobe(from, 51, MPI_COMM_WORLD, &message, &status);
  MPI_Get_count(&status, MPI_BYTE, &n);
  CHECK(n == 300000);
  MPI_Recv(got, 4, MPI_CHAR, from, 50, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  CHECK(strcmp(got, "abc") == 0);
  MPI_Mrecv(in, 300000, MPI_BYTE, &message, &status);
  CHECK(right_is(in, 300000, from));
  MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  free(in);
  free(big);
}

static void cancels(void) {
  int x = 0, cancelled = 0;
  for (int i = 0; i < 100; ++i) {
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&x, 1, MPI_INT, i % 2 == 0 ? MPI_ANY_SOURCE : (rank + 1) % size, 4242, MPI_COMM_WORLD,
              &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void truncation(void) {
  if (size < 2 || rank > 1) return;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  char data[64] = "x";
  if (rank == 0) {
    MPI_Send(data, 64, MPI_CHAR, 1, 60, MPI_COMM_WORLD);
  } else {
    int class = MPI_SUCCESS;
    const int error = MPI_Recv(data, 8, MPI_CHAR, 0, 60, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(error, &class);
    CHECK(class == MPI_ERR_TRUNCATE);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void synchronous_and_persistent(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  MPI_Request request;
  int out = rank, in = -1, done = 1;
  MPI_Issend(&out, 1, MPI_INT, to, 70, MPI_COMM_WORLD, &request);
  for (int i = 0; i < 100; ++i) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    CHECK(!done); /* nobody has a receive for it */
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Recv(&in, 1, MPI_INT, from, 70, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(in == from);
  MPI_Request pair[2];
  MPI_Send_init(&out, 1, MPI_INT, to, 71, MPI_COMM_WORLD, &pair[0]);
  MPI_Recv_init(&in, 1, MPI_INT, from, 71, MPI_COMM_WORLD, &pair[1]);
  for (int i = 0; i < 1000; ++i) {
    out = rank + i;
    MPI_Startall(2, pair);
    MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
    CHECK(in == from + i);
  }
  MPI_Request_free(&pair[0]);
  MPI_Request_free(&pair[1]);
}

/* Datatypes with gaps reach the provider as several pieces. */
static void pieces(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  int out[400], in[400];
  MPI_Datatype columns;
  MPI_Type_vector(200, 1, 2, MPI_INT, &columns);
  MPI_Type_commit(&columns);
  for (int i = 0; i < 400; ++i) {
    out[i] = rank * 1000 + i;
    in[i] = -1;
  }
  MPI_Sendrecv(out, 1, columns, to, 80, in, 1, columns, from, 80, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (int i = 0; i < 400; ++i) CHECK(in[i] == (i % 2 == 0 ? from * 1000 + i : -1));
  MPI_Type_free(&columns);
}

static void windows(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  enum { kLength = 100000 };
  int* base = NULL;
  MPI_Win window;
  MPI_Win_allocate(kLength * (MPI_Aint)sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &base, &window);
  int* local = malloc(kLength * sizeof(int));
  for (int i = 0; i < kLength; ++i) {
    base[i] = -1;
    local[i] = rank * 7 + i;
  }
  MPI_Win_fence(0, window);
  MPI_Put(local, kLength, MPI_INT, to, 0, kLength, MPI_INT, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < kLength; ++i) CHECK(base[i] == from * 7 + i);
  MPI_Win_fence(0, window);
  MPI_Get(local, kLength, MPI_INT, to, 0, kLength, MPI_INT, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < kLength; ++i) CHECK(local[i] == rank * 7 + i);
  base[0] = 0;
  MPI_Win_fence(0, window);
  const int one = 1;
  int before = -1;
  for (int i = 0; i < 20; ++i) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 0, MPI_SUM, window);
    MPI_Win_unlock(0, window);
    CHECK(before >= 0 && before < 20 * size);
  }
  MPI_Win_fence(0, window);
  if (rank == 0) CHECK(base[0] == 20 * size);
  MPI_Win_free(&window);
  free(local);
}

/* Buffers whose memory comes and goes between messages: freed and allocated again, unmapped and
 * mapped at the same place, given back and kept. */
static void coming_and_going(void) {
  enum { kRounds = 120, kMost = 400000 };
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  unsigned char* mapped =
      mmap(NULL, 2 * kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  for (int i = 0; i < kRounds; ++i) {
    const int n = 5000 + i * 7919 % (kMost - 5000);
    unsigned char* out = i % 2 == 0 ? malloc((size_t)n) : mapped;
    unsigned char* in = i % 3 == 0 ? mapped + kMost : malloc((size_t)n);
    fill(out, n, rank + i);
    MPI_Sendrecv(out, n, MPI_BYTE, to, i, in, n, MPI_BYTE, from, i, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(right_is(in, n, from + i));
    if (out != mapped) free(out);
    if (in != mapped + kMost) free(in);
    if (i % 4 == 0) {
      CHECK(munmap(mapped, 2 * kMost) == 0);
      CHECK(mmap(mapped, 2 * kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0) == mapped);
    } else if (i % 4 == 2) {
      CHECK(madvise(mapped, 2 * kMost, MADV_DONTNEED) == 0);
    }
  }
  munmap(mapped, 2 * kMost);
}

static void collectives(void) {
  long sum = 0, mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == (long)size * (size + 1) / 2);
  for (int n = 1; n <= 65536; n *= 16) {
    int* out = malloc((size_t)n * (size_t)size * sizeof(int));
    int* in = malloc((size_t)n * (size_t)size * sizeof(int));
    for (int p = 0; p < size; ++p) {
      for (int i = 0; i < n; ++i) out[p * n + i] = rank * 100 + p;
    }
    MPI_Alltoall(out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD);
    for (int p = 0; p < size; ++p) {
      for (int i = 0; i < n; ++i) CHECK(in[p * n + i] == p * 100 + rank);
    }
    MPI_Bcast(in, n, MPI_INT, size - 1, MPI_COMM_WORLD);
    free(in);
    free(out);
  }
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Barrier(half);
  MPI_Comm_free(&half);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static const struct {
    const char* name;
    void (*run)(void);
  } parts[] = {{"all pairs", all_pairs},
               {"any source", any_source},
               {"matched probes", matched_probes},
               {"cancel", cancels},
               {"truncation", truncation},
               {"synchronous and persistent", synchronous_and_persistent},
               {"pieces", pieces},
               {"windows", windows},
               {"coming and going", coming_and_going},
               {"collectives", collectives}};
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
    if (argc > 1 && strstr(argv[1], parts[i].name) == NULL) continue;
    parts[i].run();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%s: ok\n", parts[i].name);
    fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
