// SPDX-License-Identifier: BSD-3-Clause
/* patterns: onetoall, alltoone and repeat of the AQPS paper (section 4.3) as an MPI program.
 *
 *   mpiexec -n N patterns [options] onetoall|alltoone|repeat
 *
 * onetoall: rank 0 sends to all others round robin, alltoone: all others send to rank 0, repeat:
 * the one, then the other, five times. A series is N-1 sends. After a series that brought a process
 * above 128 messages since the last barrier, all meet in one; sim/workloads/hot_rank.cpp has the
 * same rule. Every message's first byte counts the messages of its pair, and is checked. Rank 0
 * prints the median over the repeats; exit status 1: a message was lost, changed or out of order.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTag = 7, kMostWindow = 4096, kMostBytes = 1 << 20 };

static const char kUsage[] =
    "usage: mpiexec -n N patterns [options] onetoall|alltoone|repeat\n"
    "  --messages N      of one onetoall, 320000\n"
    "  --messages-in N   of one alltoone, all senders together, 48000\n"
    "  --bytes N         of a message, 1\n"
    "  --repeats N       timed runs, 3\n"
    "  --times N         of onetoall and alltoone in one repeat, 5\n"
    "  --barrier N       barriers above so many messages, 128; 0: none\n"
    "  --window N        sends under way, 16\n"
    "  --ahead N         receives posted ahead, 64\n"
    "  --warm-up S       seconds of the pattern before the timed runs, 2\n"
    "  --json            one line of JSON\n";

typedef struct {
  long messages_out, messages_in, bytes, repeats, times, barrier, window, ahead;
  double warm_up;
  int json;
} Options;

typedef struct {
  MPI_Request* requests;
  char* buffers;
  long size, begin, count; /* the ones under way, oldest first, in a ring of `size` */
} Window;

static int rank_, ranks_;
static Options options_;
static Window sends_, receives_;
static long received_;  /* by this rank */
static long wrong_;     /* messages that were not the next of their pair */
static long* expected_; /* number of the next message, by peer */
static long* numbers_;  /* of the next message sent, by peer */

static void fail(const char* what) {
  if (rank_ == 0) fprintf(stderr, "patterns: %s\n%s", what, kUsage);
  MPI_Finalize();
  exit(2);
}

static Window make_window(long size) {
  Window w = {malloc((size_t)size * sizeof(MPI_Request)),
              malloc((size_t)size * (size_t)options_.bytes), size, 0, 0};
  if (w.requests == NULL || w.buffers == NULL) {
    fprintf(stderr, "patterns: no memory for %ld messages\n", size);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return w;
}

static char* slot(Window* w, long at) {
  return w->buffers + (at % w->size) * options_.bytes;
}

static void finish_send(void) {
  MPI_Wait(&sends_.requests[sends_.begin % sends_.size], MPI_STATUS_IGNORE);
  ++sends_.begin;
  --sends_.count;
}

static void drain(void) {
  while (sends_.count > 0) finish_send();
}

static void start_send(int to) {
  if (sends_.count == sends_.size) finish_send();
  const long at = sends_.begin + sends_.count;
  char* const buffer = slot(&sends_, at);
  memset(buffer, (int)(numbers_[to]++ & 0xff), (size_t)options_.bytes);
  MPI_Isend(buffer, (int)options_.bytes, MPI_BYTE, to, kTag, MPI_COMM_WORLD,
            &sends_.requests[at % sends_.size]);
  ++sends_.count;
}

static void start_receive(int from) {
  const long at = receives_.begin + receives_.count;
  MPI_Irecv(slot(&receives_, at), (int)options_.bytes, MPI_BYTE, from, kTag, MPI_COMM_WORLD,
            &receives_.requests[at % receives_.size]);
  ++receives_.count;
}

static void finish_receive(void) {
  MPI_Status status;
  MPI_Wait(&receives_.requests[receives_.begin % receives_.size], &status);
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  const char* const buffer = slot(&receives_, receives_.begin);
  const char number = (char)(expected_[status.MPI_SOURCE]++ & 0xff);
  if (bytes != options_.bytes || buffer[0] != number || buffer[bytes - 1] != number) ++wrong_;
  ++received_;
  ++receives_.begin;
  --receives_.count;
}

/* Of `messages` dealt round robin to ranks 1 to N-1, those of `rank`. */
static long share(long messages, int rank) {
  const long peers = ranks_ - 1;
  return messages / peers + (rank - 1 < messages % peers);
}

/* Series between two barriers, 0: none. */
static long every(long per_series) {
  return options_.barrier == 0 ? 0 : options_.barrier / per_series + 1;
}

/* A rank that sends to or receives from rank 0: one message a series. */
static void meet_after(long message, long series, long full) {
  if (series == 0 || message > full || message % series != 0) return;
  drain();
  MPI_Barrier(MPI_COMM_WORLD);
}

static void one_to_all(long messages) {
  const long series = every(1), full = messages / (ranks_ - 1);
  if (rank_ == 0) {
    for (long i = 0; i < messages; ++i) {
      start_send(1 + (int)(i % (ranks_ - 1)));
      if ((i + 1) % (ranks_ - 1) == 0) meet_after((i + 1) / (ranks_ - 1), series, full);
    }
    drain();
  } else {
    const long mine = share(messages, rank_);
    long posted = 0;
    for (long i = 1; i <= mine; ++i) {
      for (; posted < mine && receives_.count < receives_.size; ++posted) start_receive(0);
      finish_receive();
      meet_after(i, series, full);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void all_to_one(long messages) {
  const long series = every(ranks_ - 1), full = messages / (ranks_ - 1);
  if (rank_ == 0) {
    long posted = 0;
    for (long i = 1; i <= messages; ++i) {
      for (; posted < messages && receives_.count < receives_.size; ++posted) {
        start_receive(1 + (int)(posted % (ranks_ - 1)));
      }
      finish_receive();
      if (i % (ranks_ - 1) == 0) meet_after(i / (ranks_ - 1), series, full);
    }
  } else {
    const long mine = share(messages, rank_);
    for (long i = 1; i <= mine; ++i) {
      start_send(0);
      meet_after(i, series, full);
    }
    drain();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void pattern(const char* name, long out, long in, long times) {
  if (strcmp(name, "onetoall") == 0) {
    one_to_all(out);
  } else if (strcmp(name, "alltoone") == 0) {
    all_to_one(in);
  } else {
    for (long i = 0; i < times; ++i) {
      one_to_all(out);
      all_to_one(in);
    }
  }
}

static long smaller(long a, long b) {
  return a < b ? a : b;
}

/* Short runs until the time is over, so that channels are chosen before anything is timed. */
static void warm_up(const char* name) {
  const double end = MPI_Wtime() + options_.warm_up;
  for (;;) {
    int more = MPI_Wtime() < end;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!more) return;
    pattern(name, smaller(options_.messages_out, 10000), smaller(options_.messages_in, 10000), 1);
  }
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static long number(const char* text, const char* option, long least, long most) {
  char* end = NULL;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < least || value > most) {
    char what[160];
    snprintf(what, sizeof what, "--%s %.40s: expected %ld to %ld", option, text, least, most);
    fail(what);
  }
  return value;
}

static const char* parse(int argc, char** argv) {
  static const struct option kOptions[] = {
      {"messages", 1, NULL, 'm'}, {"messages-in", 1, NULL, 'i'},
      {"bytes", 1, NULL, 'b'},    {"repeats", 1, NULL, 'r'},
      {"times", 1, NULL, 't'},    {"barrier", 1, NULL, 'B'},
      {"window", 1, NULL, 'w'},   {"ahead", 1, NULL, 'a'},
      {"warm-up", 1, NULL, 'u'},  {"json", 0, NULL, 'j'},
      {NULL, 0, NULL, 0}};
  const long most = 1000000000;
  options_ = (Options){320000, 48000, 1, 3, 5, 128, 16, 64, 2.0, 0};
  opterr = rank_ == 0;
  for (int option; (option = getopt_long(argc, argv, "", kOptions, NULL)) != -1;) {
    char* end = NULL;
    switch (option) {
      case 'm':
        options_.messages_out = number(optarg, "messages", 1, most);
        break;
      case 'i':
        options_.messages_in = number(optarg, "messages-in", 1, most);
        break;
      case 'b':
        options_.bytes = number(optarg, "bytes", 1, kMostBytes);
        break;
      case 'r':
        options_.repeats = number(optarg, "repeats", 1, 1000);
        break;
      case 't':
        options_.times = number(optarg, "times", 1, 1000);
        break;
      case 'B':
        options_.barrier = number(optarg, "barrier", 0, most);
        break;
      case 'w':
        options_.window = number(optarg, "window", 1, kMostWindow);
        break;
      case 'a':
        options_.ahead = number(optarg, "ahead", 1, kMostWindow);
        break;
      case 'u':
        options_.warm_up = strtod(optarg, &end);
        if (end == optarg || *end != '\0' || !(options_.warm_up >= 0 && options_.warm_up <= 3600)) {
          fail("--warm-up: expected 0 to 3600 seconds");
        }
        break;
      case 'j':
        options_.json = 1;
        break;
      default:
        fail("what is that option?");
    }
  }
  if (optind + 1 != argc) fail("name one pattern");
  const char* const name = argv[optind];
  if (strcmp(name, "onetoall") != 0 && strcmp(name, "alltoone") != 0 &&
      strcmp(name, "repeat") != 0) {
    fail("the pattern is onetoall, alltoone or repeat");
  }
  if (ranks_ < 2) fail("at least two ranks");
  return name;
}

static void print(const char* name, long messages, double seconds, long received, long wrong) {
  const double each = seconds * 1e9 / (double)messages;
  if (options_.json) {
    printf(
        "{\"pattern\": \"%s\", \"ranks\": %d, \"bytes\": %ld, \"messages\": %ld, "
        "\"repeats\": %ld, \"received\": %ld, \"wrong\": %ld, \"ns_per_send\": %.1f, "
        "\"seconds\": %.6f}\n",
        name, ranks_, options_.bytes, messages, options_.repeats, received, wrong, each, seconds);
  } else {
    printf(
        "%s: %d ranks, %ld messages of %ld B: %.1f ns per send, %.3f s (median of %ld), %ld "
        "messages received, %ld wrong\n",
        name, ranks_, messages, options_.bytes, each, seconds, options_.repeats, received, wrong);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  const char* const name = parse(argc, argv);
  sends_ = make_window(options_.window);
  receives_ = make_window(options_.ahead);
  expected_ = calloc((size_t)ranks_, sizeof *expected_);
  numbers_ = calloc((size_t)ranks_, sizeof *numbers_);
  double* const times = calloc((size_t)options_.repeats, sizeof *times);
  if (expected_ == NULL || numbers_ == NULL || times == NULL) MPI_Abort(MPI_COMM_WORLD, 1);

  warm_up(name);
  received_ = 0;
  for (long i = 0; i < options_.repeats; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    pattern(name, options_.messages_out, options_.messages_in, options_.times);
    times[i] = MPI_Wtime() - start;
  }
  const long messages = strcmp(name, "onetoall") == 0 ? options_.messages_out
                        : strcmp(name, "alltoone") == 0
                            ? options_.messages_in
                            : options_.times * (options_.messages_out + options_.messages_in);
  long mine[2] = {received_, wrong_}, sums[2] = {0, 0};
  MPI_Allreduce(mine, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  qsort(times, (size_t)options_.repeats, sizeof *times, ascending);
  const int good = sums[0] == messages * options_.repeats && sums[1] == 0;
  if (rank_ == 0) {
    print(name, messages, times[options_.repeats / 2], sums[0], sums[1]);
    if (!good) {
      fprintf(stderr, "patterns: %ld messages received and %ld wrong, expected %ld and 0\n",
              sums[0], sums[1], messages * options_.repeats);
    }
  }
  free(times);
  free(numbers_);
  free(expected_);
  free(sends_.requests);
  free(sends_.buffers);
  free(receives_.requests);
  free(receives_.buffers);
  MPI_Finalize();
  return good ? 0 : 1;
}
