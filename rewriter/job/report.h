/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h: the reports of gpushare-patch about a file, as text and as JSON.
 */
#pragma once

#include "rewriter/job/job.h"

/* --print: kind, scope, CUDA, imports, plan. problem (code 0: none) is why it would not be
 * patched. */
void elf_report_print(FILE *to, const struct elf_job *job, const struct gs_err *problem);
void elf_report_print_json(FILE *to, const struct elf_job *job, const struct gs_err *problem);

/* --check. present: the runtime library that the marker names exists. problem (code 0: none) is
 * why the file could not be checked. */
void elf_report_check(FILE *to, const struct elf_job *job, bool present);
void elf_report_check_json(FILE *to, const struct elf_job *job, bool present,
                           const struct gs_err *problem);

/* One line for a patched file that strip would break; nothing for others. */
void elf_report_strip(FILE *to, const struct elf_job *job);

/* One line for a file that was patched (or would be, with --dry-run). */
void elf_report_done(FILE *to, const struct elf_job *job);
