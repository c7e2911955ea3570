/* The Open MPI half of `weft bench run collectives`: each rank reads its commands from
 * a FIFO (so that an idle rank sleeps) and rank 0 answers with seconds an operation.
 * Usage: mpi_collectives COMMAND_FIFO_PREFIX REPLY_FIFO MAX_BYTES */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
  size_t max_bytes = strtoull(argv[3], NULL, 10);
  float* in = malloc(max_bytes + 64);
  float* out = malloc(max_bytes + 64);
  if (in == NULL || out == NULL) MPI_Abort(MPI_COMM_WORLD, 3);
  memset(in, 0, max_bytes);
  memset(out, 0, max_bytes);
  char path[4096];
  snprintf(path, sizeof(path), "%s%d", argv[1], rank);
  MPI_Barrier(MPI_COMM_WORLD);
  FILE* replies = NULL;
  FILE* commands = fopen(path, "r");
  if (rank == 0) {
    replies = fopen(argv[2], "w");
    fprintf(replies, "ready\n");
    fflush(replies);
  }
  char op[64];
  unsigned long long bytes;
  int iterations;
  while (fscanf(commands, "%63s %llu %d", op, &bytes, &iterations) == 3) {
    int count = (int)(bytes / sizeof(float));
    int part = count / ranks;
    double start = 0;
    for (int i = -2; i < iterations; ++i) {
      if (i == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
      }
      if (!strcmp(op, "allreduce")) {
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      } else if (!strcmp(op, "allgather")) {
        MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
      } else if (!strcmp(op, "reducescatter")) {
        MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      } else if (!strcmp(op, "broadcast")) {
        MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
      } else if (!strcmp(op, "alltoall")) {
        MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = (MPI_Wtime() - start) / iterations;
    if (rank == 0) {
      fprintf(replies, "%.9e\n", seconds);
      fflush(replies);
    }
  }
  MPI_Finalize();
  return 0;
}
