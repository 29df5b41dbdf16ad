/* cli/doctor_machine.h - the checks of `verbatim doctor` on the machine: processor, GPU, libraries, folders, ports.
 *
 * Each check adds lines to the report and changes nothing; none opens an engine. Read next: cli/doctor_model.h. */
#ifndef VERBATIM_CLI_DOCTOR_MACHINE_H
#define VERBATIM_CLI_DOCTOR_MACHINE_H
#include "cli/doctor_report.h"
#include "base/dynlib.h"

typedef struct cli_doctor_machine { /* set by the first checks, used by the later ones */
  int device;                       /* as in verbatim_config: the device requested */
  const dynlib_search *search;
  uint64_t memory_bytes;            /* host memory available to programs */
  bool has_gpu;                     /* the engine would use it */
  uint32_t gpu_count;               /* that the process sees */
  char gpu_name[96];
  uint64_t gpu_free_bytes, gpu_bytes;
} cli_doctor_machine;

void cli_doctor_machine_check_cpu(cli_doctor_report *report, cli_doctor_machine *machine); /* processor and memory */
void cli_doctor_machine_check_gpu(cli_doctor_report *report, cli_doctor_machine *machine);
void cli_doctor_machine_check_libraries(cli_doctor_report *report, const cli_doctor_machine *machine); /* NVRTC, cuBLASLt, NCCL */

/* folder: for compiled kernels; NULL: none. */
void cli_doctor_machine_check_cache(cli_doctor_report *report, const cli_doctor_machine *machine, const char *folder);

/* The number of connections the server allows at once; files_max: the hard limit, to which the server raises its soft one. */
void cli_doctor_machine_check_files(cli_doctor_report *report, uint64_t connections, uint64_t files_max);
void cli_doctor_machine_check_port(cli_doctor_report *report, const char *host, const char *port);

#endif
