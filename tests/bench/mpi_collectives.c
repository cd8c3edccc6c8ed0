// The work of bench_collectives, done by MPI: what hvd is compared with.
//
//   mpicc -O3 -march=native mpi_collectives.c -o mpi_collectives -lm
//   mpirun -np 4 mpi_collectives --collective allreduce --sizes 8,1024,67108864 [--tensors 100] [--in-place]
//       [--seconds 0.5] [--pin] [--persistent] [--json FILE]
//
// Sizes, values, rounds and clock are those of workload.h and collectives.cc; the two must change together. Several
// tensors are what Horovod makes of them: copied into one buffer, reduced there, and copied out again. With --in-place
// MPI_Allreduce gets MPI_IN_PLACE. With --persistent one tensor's allreduce is a persistent request, where MPI has
// them.
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#if MPI_VERSION < 4 && defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPeriod = 1021, kManyCalls = 300, kMinRounds = 5, kMaxRounds = 2000, kMaxSizes = 64, kAlignment = 4096 };
static const size_t kSmallBytes = 64 << 10;
static const double kRoundSeconds = 0.05;

static struct {
  const char* collective;
  size_t sizes[kMaxSizes];
  int size_count;
  int tensors;
  int in_place;
  int pin;
  int persistent;
  double seconds;
  const char* json;
} options = {.collective = "allreduce", .tensors = 1, .seconds = 0.5};

static int rank, ranks, root;

static void fail(const char* what, const char* which) {
  fprintf(stderr, "rank %d: %s %s\n", rank, what, which);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// ---- values

static long shift(int of_rank, int round) { return (131L * of_rank + 17L * round) % kPeriod; }

static void add_contribution(float* pattern, int of_rank, int round) {
  for (long i = 0; i < kPeriod; ++i) pattern[i] += (float)((i + shift(of_rank, round)) % kPeriod);
}

static void write_pattern(const float* pattern, float* target, long first, long count) {
  for (long done = 0; done < count;) {
    const long start = (first + done) % kPeriod;
    const long length = kPeriod - start < count - done ? kPeriod - start : count - done;
    memcpy(target + done, pattern + start, (size_t)length * sizeof(float));
    done += length;
  }
}

static int matches(const float* pattern, const float* data, long first, long count) {
  for (long done = 0; done < count;) {
    const long start = (first + done) % kPeriod;
    const long length = kPeriod - start < count - done ? kPeriod - start : count - done;
    if (memcmp(data + done, pattern + start, (size_t)length * sizeof(float)) != 0) return 0;
    done += length;
  }
  return 1;
}

// ---- one collective on some tensors

typedef enum { ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER } Collective;
static const char* const kNames[] = {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter"};

typedef struct {
  Collective collective;
  long input_elements;   // of a tensor
  long output_elements;  // of a tensor
  float** inputs;        // by tensor
  float** outputs;
  float* packed;  // several tensors: all of them, and their sum
  float* packed_sum;
} Work;

static float* allocate(long elements) {
  const size_t bytes = ((size_t)elements * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  float* memory = aligned_alloc(kAlignment, bytes);
  if (memory == NULL) fail("there is not so much memory", "");
  return memory;
}

static Work make_work(size_t bytes) {
  Work work = {.collective = ALLREDUCE};
  while (strcmp(kNames[work.collective], options.collective) != 0) {
    if (++work.collective > REDUCESCATTER) fail("there is no collective", options.collective);
  }
  if (work.collective != ALLREDUCE && (options.tensors > 1 || options.in_place)) {
    fail("one tensor and out of place only:", options.collective);
  }
  const long elements = (long)(bytes / sizeof(float)) / options.tensors;
  const long block = elements / ranks;
  switch (work.collective) {
    case ALLREDUCE:
    case BROADCAST: work.input_elements = work.output_elements = elements; break;
    case ALLGATHER: work.input_elements = block, work.output_elements = block * ranks; break;
    case REDUCESCATTER: work.input_elements = block * ranks, work.output_elements = block; break;
    case ALLTOALL: work.input_elements = work.output_elements = block * ranks; break;
  }
  if (work.input_elements == 0) fail("too few bytes for so many ranks and tensors", "");
  work.inputs = malloc((size_t)options.tensors * sizeof(float*));
  work.outputs = malloc((size_t)options.tensors * sizeof(float*));
  for (int t = 0; t < options.tensors; ++t) {
    const int one_buffer = options.in_place || work.collective == BROADCAST;
    work.inputs[t] = allocate(work.input_elements);
    work.outputs[t] = one_buffer ? work.inputs[t] : allocate(work.output_elements);
  }
  if (options.tensors > 1) {
    work.packed = allocate(elements * options.tensors);
    work.packed_sum = options.in_place ? work.packed : allocate(elements * options.tensors);
  }
  return work;
}

static void free_work(Work* work) {
  for (int t = 0; t < options.tensors; ++t) {
    if (work->outputs[t] != work->inputs[t]) free(work->outputs[t]);
    free(work->inputs[t]);
  }
  if (work->packed_sum != work->packed) free(work->packed_sum);
  free(work->packed);
  free(work->inputs);
  free(work->outputs);
}

static void rewrite(const Work* work, int round) {
  float pattern[kPeriod] = {0};
  add_contribution(pattern, rank, round);
  const int gives = work->collective != BROADCAST || rank == root;
  for (int t = 0; t < options.tensors; ++t) {
    for (long i = 0; i < work->output_elements; ++i) work->outputs[t][i] = -1.0f;
    if (gives) write_pattern(pattern, work->inputs[t], t * work->input_elements, work->input_elements);
  }
}

// The request is made anew for other memory.
static void run_persistent(const void* input, float* output, int elements) {
#if MPI_VERSION >= 4
#define ALLREDUCE_INIT MPI_Allreduce_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define ALLREDUCE_INIT MPIX_Allreduce_init
#endif
#ifdef ALLREDUCE_INIT
  static MPI_Request request = MPI_REQUEST_NULL;
  static float* prepared;
  static int prepared_elements;
  if (prepared != output || prepared_elements != elements) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    ALLREDUCE_INIT(input, output, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    prepared = output;
    prepared_elements = elements;
  }
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
#else
  fail("this MPI has no persistent collectives", "");
#endif
}

static void run(const Work* work) {
  float* input = work->inputs[0];
  float* output = work->outputs[0];
  const int elements = (int)work->input_elements;
  const int block = elements / ranks;
  switch (work->collective) {
    case ALLREDUCE:
      if (options.persistent) return run_persistent(options.in_place ? MPI_IN_PLACE : input, output, elements);
      MPI_Allreduce(options.in_place ? MPI_IN_PLACE : input, output, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case ALLGATHER: MPI_Allgather(input, elements, MPI_FLOAT, output, elements, MPI_FLOAT, MPI_COMM_WORLD); break;
    case BROADCAST: MPI_Bcast(output, elements, MPI_FLOAT, root, MPI_COMM_WORLD); break;
    case ALLTOALL: MPI_Alltoall(input, block, MPI_FLOAT, output, block, MPI_FLOAT, MPI_COMM_WORLD); break;
    case REDUCESCATTER: MPI_Reduce_scatter_block(input, output, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
  }
}

static void run_packed(const Work* work) {
  const size_t bytes = (size_t)work->input_elements * sizeof(float);
  const long all = work->input_elements * options.tensors;
  for (int t = 0; t < options.tensors; ++t) memcpy(work->packed + t * work->input_elements, work->inputs[t], bytes);
  MPI_Allreduce(options.in_place ? MPI_IN_PLACE : work->packed, work->packed_sum, (int)all, MPI_FLOAT, MPI_SUM,
                MPI_COMM_WORLD);
  for (int t = 0; t < options.tensors; ++t) {
    memcpy(work->outputs[t], work->packed_sum + t * work->input_elements, bytes);
  }
}

static void check(const Work* work, int round, int calls) {
  const int by_rank = work->collective == ALLGATHER || work->collective == ALLTOALL;
  const int blocks = by_rank ? ranks : 1;
  const long block = work->output_elements / blocks;
  for (int b = 0; b < blocks; ++b) {
    float expected[kPeriod] = {0};
    if (work->collective == BROADCAST) {
      add_contribution(expected, root, round);
    } else if (by_rank) {
      add_contribution(expected, b, round);
    } else {
      for (int r = 0; r < ranks; ++r) add_contribution(expected, r, round);
      const float factor = options.in_place ? powf((float)ranks, (float)(calls - 1)) : 1;
      for (int i = 0; i < kPeriod; ++i) expected[i] *= factor;
    }
    for (int t = 0; t < options.tensors; ++t) {
      long first = t * work->input_elements;
      if (work->collective == ALLTOALL) first += rank * block;
      if (work->collective == REDUCESCATTER) first += rank * work->output_elements;
      if (!matches(expected, work->outputs[t] + b * block, first, block)) fail("wrong values in", options.collective);
    }
  }
}

// ---- measuring

// An allreduce in place multiplies its result by the number of ranks in each call: how many calls stay exact.
static int exact_calls(void) {
  if (!options.in_place || ranks == 1) return kManyCalls;
  if ((ranks & (ranks - 1)) == 0) return (int)(100 / log2(ranks));
  return 1 + (int)(log((double)(1 << 24) / (kPeriod * ranks)) / log(ranks));
}

static double time_round(const Work* work, int number, int calls) {
  rewrite(work, number);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  if (options.tensors > 1) {
    for (int call = 0; call < calls; ++call) run_packed(work);
  } else {
    for (int call = 0; call < calls; ++call) run(work);
  }
  const double time = (MPI_Wtime() - start) / calls;
  MPI_Barrier(MPI_COMM_WORLD);
  check(work, number, calls);
  return time;
}

static double clamp(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

static long agree(long value) {
  MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  return value;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void measure(size_t bytes, FILE* json, const char* separator) {
  Work work = make_work(bytes);
  time_round(&work, 0, 1);
  const double call_time = time_round(&work, 1, 1);
  const double many = bytes <= kSmallBytes ? clamp(kRoundSeconds / call_time, 1, exact_calls()) : 1;
  const int calls = (int)agree(lround(many));
  const double start = MPI_Wtime();
  time_round(&work, 2, calls);
  const int rounds = (int)agree(lround(clamp(options.seconds / (MPI_Wtime() - start), kMinRounds, kMaxRounds)));
  double* times = malloc((size_t)rounds * sizeof(double));
  for (int round = 0; round < rounds; ++round) times[round] = time_round(&work, round, calls);
  qsort(times, (size_t)rounds, sizeof(double), ascending);
  if (rank == 0) {
    const double min = times[0] * 1e6, median = times[(size_t)(0.5 * (rounds - 1))] * 1e6;
    const double p99 = times[(size_t)(0.99 * (rounds - 1))] * 1e6;
    printf("%-13s %2d ranks %10zu bytes in %3d tensors %-13s min %10.2f us  median %10.2f us  p99 %10.2f us\n",
           options.collective, ranks, bytes, options.tensors, "mpi", min, median, p99);
    fflush(stdout);
    if (json != NULL) {
      fprintf(json,
              "%s\n  {\"collective\": \"%s\", \"bytes\": %zu, \"tensors\": %d, \"in_place\": %s, \"backend\": \"mpi\", "
              "\"rounds\": %d, \"calls\": %d, \"min_us\": %.4f, \"median_us\": %.4f, \"p99_us\": %.4f}",
              separator, options.collective, bytes, options.tensors, options.in_place ? "true" : "false", rounds, calls,
              min, median, p99);
    }
  }
  free(times);
  free_work(&work);
}

// ---- options

static size_t parse_size(const char* text, char** end) {
  const size_t number = strtoull(text, end, 10);
  switch (**end) {
    case 'K': ++*end; return number << 10;
    case 'M': ++*end; return number << 20;
    default: return number;
  }
}

static void parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--in-place") == 0) {
      options.in_place = 1;
    } else if (strcmp(name, "--pin") == 0) {
      options.pin = 1;
    } else if (strcmp(name, "--persistent") == 0) {
      options.persistent = 1;
    } else if (i + 1 == argc) {
      fail("unknown option, or without its value:", name);
    } else if (strcmp(name, "--collective") == 0) {
      options.collective = argv[++i];
    } else if (strcmp(name, "--tensors") == 0) {
      options.tensors = atoi(argv[++i]);
    } else if (strcmp(name, "--seconds") == 0) {
      options.seconds = atof(argv[++i]);
    } else if (strcmp(name, "--json") == 0) {
      options.json = argv[++i];
    } else if (strcmp(name, "--sizes") == 0) {
      char* end = argv[++i];
      do {
        if (options.size_count == kMaxSizes) fail("too many sizes:", argv[i]);
        options.sizes[options.size_count++] = parse_size(*end == ',' ? end + 1 : end, &end);
      } while (*end == ',');
      if (*end != '\0') fail("not a size:", end);
    } else {
      fail("unknown option", name);
    }
  }
  if (options.size_count == 0 || options.tensors < 1) fail("wanted: --sizes", "8,64K,16M");
}

// The r-th rank of a host on its r-th CPU, round and round.
static void pin_to_cpu(void) {
  MPI_Comm host;
  int local_rank;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &local_rank);
  MPI_Comm_free(&host);
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail("sched_getaffinity", "");
  int left = local_rank % CPU_COUNT(&allowed);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed) || left-- > 0) ++cpu;
  CPU_ZERO(&allowed);
  CPU_SET(cpu, &allowed);
  if (sched_setaffinity(0, sizeof allowed, &allowed) != 0) fail("sched_setaffinity", "");
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  root = ranks - 1;  // rank 0 has the clock, and a root may be done before anyone has its data
  parse(argc, argv);
  if (options.pin) pin_to_cpu();
  FILE* json = NULL;
  if (rank == 0 && options.json != NULL) {
    json = fopen(options.json, "w");
    if (json == NULL) fail("cannot write", options.json);
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",")] = '\0';
    fprintf(json, "{\"program\": \"%s\", \"ranks\": %d, \"pinned\": %s, \"results\": [", version, ranks,
            options.pin ? "true" : "false");
  }
  for (int i = 0; i < options.size_count; ++i) measure(options.sizes[i], json, i == 0 ? "" : ",");
  if (json != NULL) {
    fprintf(json, "\n]}\n");
    if (fclose(json) != 0) fail("cannot write", options.json);
  }
  MPI_Finalize();
  return 0;
}
