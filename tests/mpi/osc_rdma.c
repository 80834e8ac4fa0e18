// SPDX-License-Identifier: BSD-3-Clause
/* One-sided communication of MPI, every value verified: windows of the program's memory and of
 * MPI's; Put, Get, Accumulate, Fetch_and_op, Compare_and_swap; epochs by fence, by post and start,
 * and by locks. Any MPI library, two processes or more.
 *
 *   osc_rdma
 *
 * The last line of the first rank is that all was verified. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Words of a rank's window: what its neighbours put and take, and behind it counters. The last
 * sizes are above every eager limit; 3 and 1,025 are no multiple of anything. */
enum { kWords = 1 << 17, kCounters = 64, kAll = kWords + kCounters };
static const int counts[] = {1, 3, 64, 1025, 8192, kWords};
enum { kCounts = sizeof counts / sizeof counts[0] };

static int rank, size;
static const char* doing = "starting";

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* Without MPI's help, which may be what failed: mpirun ends the others. */
static _Noreturn void end_with(const char* format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "rank %d, %s: ", rank, doing);
  vfprintf(stderr, format, list);
  fprintf(stderr, "\n");
  va_end(list);
  fflush(NULL);
  _exit(1);
}

static void check_call(int error, const char* call) {
  if (error == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  end_with("MPI error of %.60s: %.300s", call, text);
}
#define MPI(call) check_call(call, #call)

/* What `owner` sends or shows in an exchange of this number. */
static uint64_t word_of(int owner, int number, int index) {
  return mix(mix((uint64_t)(owner * 1000 + number)) + (uint64_t)index);
}

static void fill(uint64_t* words, int count, int owner, int number) {
  for (int i = 0; i < count; ++i) words[i] = word_of(owner, number, i);
}

static void verify(const uint64_t* words, int count, int owner, int number) {
  for (int i = 0; i < count; ++i) {
    if (words[i] != word_of(owner, number, i)) {
      end_with("word %d of %d is not what rank %d sent in exchange %d", i, count, owner, number);
    }
  }
}

static void expect(uint64_t is, uint64_t want, const char* what) {
  if (is == want) return;
  end_with("%s is %llu, not %llu", what, (unsigned long long)is, (unsigned long long)want);
}

static uint64_t* allocate(int count) {
  uint64_t* words = calloc((size_t)count, sizeof *words);
  if (words == NULL) end_with("no memory");
  return words;
}

/* Everybody puts to the next, takes from it what that one shows, and adds to everybody. */
static void by_fence(MPI_Win win, uint64_t* mine) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  uint64_t *out = allocate(kWords), *in = allocate(kWords);
  doing = "fence";
  for (int c = 0; c < kCounts; ++c) {
    const int count = counts[c];
    fill(out, count, rank, c);
    MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    MPI(MPI_Put(out, count, MPI_UINT64_T, right, 0, count, MPI_UINT64_T, win));
    MPI(MPI_Win_fence(0, win));
    verify(mine, count, left, c);
    MPI(MPI_Get(in, count, MPI_UINT64_T, right, 0, count, MPI_UINT64_T, win));
    MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    verify(in, count, rank, c);
  }
  doing = "accumulate";
  memset(mine, 0, kWords * sizeof *mine);
  for (int c = 0; c < kCounts; ++c) {
    for (int i = 0; i < counts[c]; ++i) out[i] = (uint64_t)(rank + 1) * (uint64_t)(i + 1);
    MPI(MPI_Win_fence(0, win));
    for (int to = 0; to < size; ++to) {
      MPI(MPI_Accumulate(out, counts[c], MPI_UINT64_T, to, 0, counts[c], MPI_UINT64_T, MPI_SUM,
                         win));
    }
    MPI(MPI_Win_fence(0, win));
    for (int i = 0; i < kWords; ++i) {
      uint64_t times = 0;
      for (int d = 0; d <= c; ++d) times += i < counts[d];
      expect(mine[i], times * (uint64_t)(i + 1) * (uint64_t)(size * (size + 1) / 2), "a sum");
    }
    MPI(MPI_Barrier(MPI_COMM_WORLD)); /* the next fence opens all windows */
  }
  free(out);
  free(in);
}

/* Post and start, complete and wait: each is the target of the one before and the origin of the
 * next. */
static void by_post_and_start(MPI_Win win, uint64_t* mine) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  uint64_t* out = allocate(kWords);
  MPI_Group all, origin, target;
  doing = "post and start";
  MPI(MPI_Comm_group(MPI_COMM_WORLD, &all));
  MPI(MPI_Group_incl(all, 1, &left, &origin));
  MPI(MPI_Group_incl(all, 1, &right, &target));
  for (int c = 0; c < kCounts; ++c) {
    fill(out, counts[c], rank, 100 + c);
    MPI(MPI_Win_post(origin, 0, win));
    MPI(MPI_Win_start(target, 0, win));
    MPI(MPI_Put(out, counts[c], MPI_UINT64_T, right, 0, counts[c], MPI_UINT64_T, win));
    MPI(MPI_Win_complete(win));
    MPI(MPI_Win_wait(win));
    verify(mine, counts[c], left, 100 + c);
  }
  MPI(MPI_Group_free(&all));
  MPI(MPI_Group_free(&origin));
  MPI(MPI_Group_free(&target));
  free(out);
}

static int by_value(const void* a, const void* b) {
  const uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
  return (x > y) - (x < y);
}

/* Counters of every rank that all add to, each number once; a lock around several operations. */
static void by_lock(MPI_Win win, uint64_t* mine) {
  enum { kTimes = 100 };
  uint64_t *got = allocate(kTimes * size), *all = allocate(kTimes * size * size);
  const uint64_t one = 1;
  doing = "fetch and op";
  memset(mine + kWords, 0, kCounters * sizeof *mine);
  MPI(MPI_Win_fence(0, win));
  MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
  for (int to = 0; to < size; ++to) {
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win));
    for (int i = 0; i < kTimes; ++i) {
      MPI(MPI_Fetch_and_op(&one, &got[to * kTimes + i], MPI_UINT64_T, to, kWords, MPI_SUM, win));
      MPI(MPI_Win_flush(to, win));
    }
    MPI(MPI_Win_unlock(to, win));
  }
  for (int to = 0; to < size; ++to) {
    MPI(MPI_Gather(&got[to * kTimes], kTimes, MPI_UINT64_T, all, kTimes, MPI_UINT64_T, 0,
                   MPI_COMM_WORLD));
    if (rank != 0) continue;
    qsort(all, (size_t)(kTimes * size), sizeof *all, by_value);
    for (int i = 0; i < kTimes * size; ++i) expect(all[i], (uint64_t)i, "a number drawn");
  }

  doing = "compare and swap";
  for (int i = 0; i < kTimes; ++i) {
    uint64_t was = 0, seen = 0;
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    do {
      was = seen;
      const uint64_t next = was + 1;
      MPI(MPI_Compare_and_swap(&next, &was, &seen, MPI_UINT64_T, 0, kWords + 1, win));
      MPI(MPI_Win_flush(0, win));
    } while (seen != was);
    MPI(MPI_Win_unlock(0, win));
  }

  /* Read, then write one more, which only a lock makes whole. */
  doing = "exclusive lock";
  for (int i = 0; i < kTimes; ++i) {
    const int to = (rank + i) % size;
    uint64_t value = 0;
    MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win));
    MPI(MPI_Get(&value, 1, MPI_UINT64_T, to, kWords + 2, 1, MPI_UINT64_T, win));
    MPI(MPI_Win_flush(to, win));
    ++value;
    MPI(MPI_Put(&value, 1, MPI_UINT64_T, to, kWords + 2, 1, MPI_UINT64_T, win));
    MPI(MPI_Win_unlock(to, win));
  }
  MPI(MPI_Barrier(MPI_COMM_WORLD));
  doing = "counters";
  uint64_t counted[3] = {0, 0, 0};
  MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
  memcpy(counted, mine + kWords, sizeof counted);
  MPI(MPI_Win_unlock(rank, win));
  expect(counted[0], (uint64_t)(kTimes * size), "the counter");
  expect(counted[1], rank == 0 ? (uint64_t)(kTimes * size) : 0, "what was swapped");
  uint64_t sum = 0;
  MPI(MPI_Reduce(&counted[2], &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD));
  if (rank == 0) expect(sum, (uint64_t)(kTimes * size), "what was counted under locks");

  /* Requests, between lock_all and unlock_all; large ones, both ways at once. */
  doing = "lock all";
  const int right = (rank + 1) % size, left = (rank + size - 1) % size, half = kWords / 2;
  uint64_t *out = allocate(half), *in = allocate(half);
  fill(out, half, rank, 200);
  fill(mine + half, half, rank, 201);
  MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
  fill(mine + half, half, rank, 201);
  MPI(MPI_Win_unlock(rank, win));
  MPI(MPI_Barrier(MPI_COMM_WORLD));
  MPI(MPI_Win_lock_all(0, win));
  MPI_Request requests[2];
  MPI(MPI_Rput(out, half, MPI_UINT64_T, right, 0, half, MPI_UINT64_T, win, &requests[0]));
  MPI(MPI_Rget(in, half, MPI_UINT64_T, left, half, half, MPI_UINT64_T, win, &requests[1]));
  MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  verify(in, half, left, 201);
  MPI(MPI_Win_unlock_all(win));
  MPI(MPI_Barrier(MPI_COMM_WORLD));
  MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
  verify(mine, half, left, 200);
  MPI(MPI_Win_unlock(rank, win));
  free(out);
  free(in);
  free(got);
  free(all);
}

static void use(MPI_Win win, uint64_t* mine) {
  MPI(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
  by_fence(win, mine);
  by_post_and_start(win, mine);
  by_lock(win, mine);
  doing = "freeing the window";
  MPI(MPI_Win_free(&win));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) end_with("two processes at least, please");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Win win;
  uint64_t* mine = allocate(kAll);
  doing = "a window of the program's memory";
  MPI(MPI_Win_create(mine, kAll * sizeof *mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  use(win, mine);
  free(mine);
  doing = "a window of MPI's memory";
  MPI(MPI_Win_allocate(kAll * sizeof *mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &mine,
                       &win));
  use(win, mine);
  doing = "ending";
  MPI_Finalize();
  if (rank == 0) printf("%d ranks: all verified\n", size);
  return 0;
}
