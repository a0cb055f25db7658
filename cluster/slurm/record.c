/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c: AdminComment, which root and Slurm's own user may write and the job's user may not. The controller only replaces
 * it, so steps that end at once may each write over what another one has added: each looks afterwards and tries again. No
 * state.
 */
#include "cluster/slurm/record.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRIES 8

/* The comment as it is, to be freed; "": none. NULL: the controller did not say. */
static char *read_comment(uint32_t job, struct gs_err *err)
{
    job_info_msg_t *answer = NULL;
    char *comment = NULL;

    if (slurm_load_job(&answer, job, SHOW_ALL) != SLURM_SUCCESS || answer == NULL) {
        gs_err_set(err, -EIO, "job %u: the controller does not show it: %s", job,
                   slurm_strerror(errno));
        return NULL;
    }
    if (answer->record_count != 0) {
        const char *now = answer->job_array[0].admin_comment;

        comment = strdup(now != NULL ? now : "");
    }
    slurm_free_job_info_msg(answer);
    if (comment == NULL)
        gs_err_set(err, -ENOENT, "job %u: the controller does not know it", job);
    return comment;
}

static int write_comment(uint32_t job, char *comment, struct gs_err *err)
{
    job_desc_msg_t change;

    slurm_init_job_desc_msg(&change);
    change.job_id = job;
    change.admin_comment = comment;
    if (slurm_update_job(&change) == SLURM_SUCCESS)
        return 0;
    return gs_err_set(err, -EIO, "job %u: its AdminComment cannot be changed: %s", job,
                      slurm_strerror(errno));
}

/* The comment with the text behind it. 0; 1: it is in there already; -errno. */
static int write_behind(uint32_t job, const char *comment, const char *text, struct gs_err *err)
{
    char longer[2 * GS_RECORD_MOST + 2]; /* each part alone is below */

    if (strstr(comment, text) != NULL)
        return 1;
    if (strlen(comment) + strlen(text) > GS_RECORD_MOST)
        return gs_err_set(err, -EFBIG,
                          "job %u: its AdminComment has no room for another step; see "
                          "slurmd's log",
                          job);
    snprintf(longer, sizeof longer, "%s%s%s", comment, *comment != '\0' ? " " : "", text);
    return write_comment(job, longer, err);
}

static int add_once(uint32_t job, const char *text, struct gs_err *err)
{
    char *comment = read_comment(job, err);
    const int code = comment != NULL ? write_behind(job, comment, text, err) : err->code;

    free(comment);
    return code;
}

int gs_record_add(uint32_t job, const char *text, struct gs_err *err)
{
    /* another length for each step, so that two that meet once do not meet again */
    const long unit = (1 + getpid() % 7) * 5000000L;
    int code = 0;

    for (long i = 0; i < TRIES && code == 0; i++) {
        const struct timespec pause = {.tv_nsec = unit * i};

        nanosleep(&pause, NULL);
        code = add_once(job, text, err);
    }
    return code > 0 ? 0 : code;
}
