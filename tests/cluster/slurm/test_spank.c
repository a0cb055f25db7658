/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's callbacks with a Slurm of this file: what they set for a step, and what they write into the job's record.
 */
#include <errno.h>
#include <setjmp.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define VARIABLES 16

/* --- a Slurm --- */

static struct {
    uint32_t step, tasks;
    bool remote;
    char name[VARIABLES][64], value[VARIABLES][256];
    unsigned count;
    struct spank_option option;
    char *comment;  /* AdminComment */
    char *replaced; /* what another step writes over the first change */
    unsigned changes;
    char said[2048]; /* by slurm_error() and slurm_info() */
} slurm;

static int find_variable(const char *name)
{
    for (unsigned i = 0; i < slurm.count; i++)
        if (strcmp(slurm.name[i], name) == 0)
            return (int)i;
    return -1;
}

static const char *value_of(const char *name)
{
    const int at = find_variable(name);

    return at < 0 ? NULL : slurm.value[at];
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int size)
{
    const char *value = value_of(name);

    (void)spank;
    if (value == NULL)
        return ESPANK_ENV_NOEXIST;
    return snprintf(buffer, (size_t)size, "%s", value) < size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
    int at = find_variable(name);

    (void)spank;
    if (at >= 0 && !overwrite)
        return ESPANK_ENV_EXISTS;
    at = at < 0 ? (int)slurm.count++ : at;
    assert_true(at < VARIABLES);
    snprintf(slurm.name[at], sizeof slurm.name[at], "%s", name);
    snprintf(slurm.value[at], sizeof slurm.value[at], "%s", value);
    return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
    spank_err_t code = ESPANK_SUCCESS;
    va_list ap;

    (void)spank;
    va_start(ap, item);
    switch (item) {
    case S_JOB_ID:
        *va_arg(ap, uint32_t *) = 1234;
        break;
    case S_JOB_STEPID:
        *va_arg(ap, uint32_t *) = slurm.step;
        break;
    case S_JOB_LOCAL_TASK_COUNT:
        *va_arg(ap, uint32_t *) = slurm.tasks;
        break;
    case S_JOB_UID:
        *va_arg(ap, uid_t *) = geteuid();
        break;
    case S_JOB_GID:
        *va_arg(ap, gid_t *) = getegid();
        break;
    default:
        code = ESPANK_BAD_ARG;
    }
    va_end(ap);
    return code;
}

int spank_remote(spank_t spank)
{
    (void)spank;
    return slurm.remote;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
    (void)spank;
    slurm.option = *option;
    return ESPANK_SUCCESS;
}

static void say(const char *format, va_list ap)
{
    const size_t used = strlen(slurm.said);

    vsnprintf(slurm.said + used, sizeof slurm.said - used, format, ap);
}

void slurm_error(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say(format, ap);
    va_end(ap);
}

void slurm_info(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    say(format, ap);
    va_end(ap);
}

int slurm_load_job(job_info_msg_t **answer, uint32_t job, uint16_t flags)
{
    (void)flags;
    assert_int_equal(job, 1234);
    *answer = calloc(1, sizeof **answer);
    (*answer)->record_count = 1;
    (*answer)->job_array = calloc(1, sizeof *(*answer)->job_array);
    (*answer)->job_array[0].admin_comment = slurm.comment;
    return SLURM_SUCCESS;
}

void slurm_free_job_info_msg(job_info_msg_t *answer)
{
    free(answer->job_array);
    free(answer);
}

void slurm_init_job_desc_msg(job_desc_msg_t *change)
{
    memset(change, 0, sizeof *change);
}

int slurm_update_job(job_desc_msg_t *change)
{
    free(slurm.comment);
    slurm.comment =
        strdup(slurm.changes++ == 0 && slurm.replaced != NULL ? slurm.replaced
                                                              : change->admin_comment);
    return SLURM_SUCCESS;
}

char *slurm_strerror(int number)
{
    return strerror(number);
}

/* --- a step --- */

static char ctl_word[4096];

/* Each test is a process of its own, so the plugin's state is as after loading. */
static int begin(const char *option, const char *config)
{
    char word[4096];
    char *words[] = {word};

    snprintf(word, sizeof word, "%s", config);
    slurm.remote = true;
    slurm.tasks = slurm.tasks != 0 ? slurm.tasks : 1;
    assert_int_equal(slurm_spank_init(NULL, 1, words), 0);
    assert_string_equal(slurm.option.name, "gpushare");
    if (option != NULL && slurm.option.cb(0, option, 1) != 0)
        return -1;
    return slurm_spank_init_post_opt(NULL, 0, NULL);
}

/* A gpusharectl that answers. */
static const char *answering(void)
{
    char path[] = "/tmp/gs-spank-XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");

    fputs(
        "#!/bin/sh\n[ \"$1 $2\" = 'account --json' ] && echo \"{\\\"group\\\":\\\"$3\\\"}\"\n",
        file);
    fchmod(fd, 0755);
    fclose(file);
    snprintf(ctl_word, sizeof ctl_word, "ctl=%s", path);
    return ctl_word;
}

static void option_sets_the_environment(void **state)
{
    (void)state;
    spank_setenv(NULL, "SLURM_JOB_NAME", "nightly", 1);
    assert_int_equal(begin("batch:50", "shards"), 0);
    assert_string_equal(value_of("GPUSHARE_GROUP"), "slurm-1234.0");
    assert_string_equal(value_of("GPUSHARE_CLASS"), "batch");
    assert_string_equal(value_of("GPUSHARE_WEIGHT"), "50");
    assert_string_equal(value_of("GPUSHARE_NAME"), "nightly");
}

static void without_the_option_nothing_is_set(void **state)
{
    (void)state;
    spank_setenv(NULL, "SLURM_SHARDS_ON_NODE", "4", 1);
    assert_int_equal(begin(NULL, "norecord"), 0);
    assert_null(value_of("GPUSHARE_GROUP"));
}

static void shards_count_as_the_option(void **state)
{
    (void)state;
    spank_setenv(NULL, "SLURM_SHARDS_ON_NODE", "4", 1);
    slurm.step = SLURM_BATCH_SCRIPT;
    assert_int_equal(begin(NULL, "shards"), 0);
    assert_string_equal(value_of("GPUSHARE_GROUP"), "slurm-1234.batch");
    assert_null(value_of("GPUSHARE_CLASS"));
    assert_null(value_of("GPUSHARE_WEIGHT"));
}

static void what_the_user_set_stays(void **state)
{
    (void)state;
    spank_setenv(NULL, "GPUSHARE_GROUP", "mine", 1);
    spank_setenv(NULL, "GPUSHARE_CLASS", "interactive", 1);
    spank_setenv(NULL, "GPUSHARE_NAME", "own", 1);
    spank_setenv(NULL, "SLURM_JOB_NAME", "nightly", 1);
    assert_int_equal(begin("(null)", "shards"), 0); /* --gpushare without an argument */
    assert_string_equal(value_of("GPUSHARE_GROUP"), "mine");
    assert_string_equal(value_of("GPUSHARE_CLASS"), "interactive");
    assert_string_equal(value_of("GPUSHARE_NAME"), "own");
    slurm_spank_task_exit(NULL, 0, NULL);
    assert_null(slurm.comment); /* the account would be of more than this step */
}

static void a_bad_option_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(begin("fast", "shards"), -1);
    assert_non_null(strstr(slurm.said, "the class must be"));
}

static void figures_are_recorded_after_the_last_task(void **state)
{
    (void)state;
    slurm.tasks = 2;
    slurm.comment = strdup("billed to physics");
    assert_int_equal(begin("batch", answering()), 0);
    slurm_spank_task_exit(NULL, 0, NULL);
    assert_string_equal(slurm.comment, "billed to physics");
    slurm_spank_task_exit(NULL, 0, NULL);
    unlink(ctl_word + 4);
    assert_non_null(strstr(slurm.comment, "billed to physics gpushare@"));
    assert_non_null(strstr(slurm.comment, "={\"group\":\"slurm-1234.0\"}"));
    slurm_spank_exit(NULL, 0, NULL);
    assert_int_equal(slurm.changes, 1);
}

static void figures_that_another_step_wrote_over_are_added_again(void **state)
{
    char other[] = "gpushare@n1={\"group\":\"slurm-1234.7\"}";

    (void)state;
    slurm.replaced = other;
    assert_int_equal(begin("batch", answering()), 0);
    slurm_spank_task_exit(NULL, 0, NULL);
    unlink(ctl_word + 4);
    assert_non_null(strstr(slurm.comment, "slurm-1234.7"));
    assert_non_null(strstr(slurm.comment, "slurm-1234.0"));
    assert_int_equal(slurm.changes, 2);
}

static void a_full_record_stays_as_it_is(void **state)
{
    (void)state;
    slurm.comment = calloc(1, 16384);
    memset(slurm.comment, 'x', 16380);
    assert_int_equal(begin("batch", answering()), 0);
    slurm_spank_task_exit(NULL, 0, NULL);
    unlink(ctl_word + 4);
    assert_int_equal(slurm.changes, 0);
    assert_non_null(strstr(slurm.said, "has no room for another step"));
}

static void without_gpusharectl_the_job_goes_on(void **state)
{
    (void)state;
    assert_int_equal(begin("batch", "ctl=/nowhere/gpusharectl"), 0);
    assert_int_equal(slurm_spank_task_exit(NULL, 0, NULL), 0);
    assert_null(slurm.comment);
    assert_non_null(strstr(slurm.said, "is gpushare installed on this node?"));
}

/* The name of one test: that one; without: each in a process of its own. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(option_sets_the_environment),
        cmocka_unit_test(without_the_option_nothing_is_set),
        cmocka_unit_test(shards_count_as_the_option),
        cmocka_unit_test(what_the_user_set_stays),
        cmocka_unit_test(a_bad_option_is_an_error),
        cmocka_unit_test(figures_are_recorded_after_the_last_task),
        cmocka_unit_test(figures_that_another_step_wrote_over_are_added_again),
        cmocka_unit_test(a_full_record_stays_as_it_is),
        cmocka_unit_test(without_gpusharectl_the_job_goes_on),
    };
    int failed = 0;

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const pid_t pid = fork();
        int status = 1;

        if (pid == 0) {
            execl("/proc/self/exe", argv[0], tests[i].name, NULL);
            _exit(1);
        }
        waitpid(pid, &status, 0);
        failed += status != 0;
    }
    return failed != 0;
}
