/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.c: see parallel.h. Threads take the numbers of files from a counter. A file with
 * several names (hard links) is processed under its first name; the other names are moved to the
 * new file when all threads have ended.
 *
 * Owns the results. A lock keeps the reports of one file together.
 */
#include "rewriter/tree/parallel.h"
#include "common/same.h"
#include "rewriter/output/output.h"
#include "rewriter/elf/say.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALONE SIZE_MAX

struct name {
    struct stat was; /* before the work */
    size_t first;    /* the first name of the same file, if that is another name; else ALONE */
};

struct work {
    struct elf_parallel *parallel;
    struct name *names; /* NULL: each is worked on by itself */
    atomic_size_t next; /* relaxed: only hands out numbers; joining orders the results */
    pthread_mutex_t lock;
    size_t done; /* under lock */
};

static void show_progress(const struct work *work, const char *path)
{
    const struct elf_parallel *parallel = work->parallel;
    char name[64];

    if (!isatty(STDERR_FILENO) || parallel->options->quiet)
        return;
    if (work->done == parallel->files->count) {
        fputs("\r\033[K", stderr);
        return;
    }
    snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    elf_say_clean(name);
    fprintf(stderr, "\r%s %zu of %zu: %s\033[K", parallel->what, work->done,
            parallel->files->count, name);
}

static void work_on(struct work *work, size_t index)
{
    struct elf_parallel *parallel = work->parallel;
    const char *path = parallel->files->list[index];
    char *texts[2] = {NULL, NULL};
    size_t sizes[2];
    FILE *out = open_memstream(&texts[0], &sizes[0]);
    FILE *errors = open_memstream(&texts[1], &sizes[1]);
    enum elf_exit result = ELF_EXIT_FAILED;

    if (out != NULL && errors != NULL)
        result = elf_act(path, parallel->options, out, errors, &parallel->reaches[index]);
    if (out != NULL)
        fclose(out);
    if (errors != NULL)
        fclose(errors);
    parallel->results[index] = result;
    pthread_mutex_lock(&work->lock);
    work->done++;
    show_progress(work, path);
    if (texts[0] != NULL && !parallel->silent)
        fputs(texts[0], stdout);
    if (texts[1] != NULL && (result == ELF_EXIT_FAILED || parallel->every ||
                             (parallel->reaches[index] && result == ELF_EXIT_UNSUPPORTED)))
        fputs(texts[1], stderr);
    pthread_mutex_unlock(&work->lock);
    free(texts[0]);
    free(texts[1]);
}

static void *take_files(void *argument)
{
    struct work *work = argument;
    size_t index;

    while ((index = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed)) <
           work->parallel->files->count)
        if (work->names == NULL || work->names[index].first == ALONE)
            work_on(work, index);
    return NULL;
}

/* Finds the names that are one file. NULL: no memory; then each becomes a file of its own. */
static struct name *find_names(const struct elf_root *root, const struct elf_paths *files)
{
    struct name *names = calloc(files->count + 1, sizeof *names);
    size_t linked = 0, *list = calloc(files->count + 1, sizeof *list);

    for (size_t i = 0; names != NULL && list != NULL && i < files->count; i++) {
        struct stat *st = &names[i].was;
        struct elf_entry entry;
        const bool is_there = elf_entry_open(&entry, root, files->list[i], NULL) == 0 &&
                              fstatat(entry.folder, entry.base, st, AT_SYMLINK_NOFOLLOW) == 0;

        elf_entry_close(&entry);
        names[i].first = ALONE;
        if (!is_there || !S_ISREG(st->st_mode) || st->st_nlink < 2)
            continue;
        for (size_t j = 0; j < linked && names[i].first == ALONE; j++)
            if (gs_same_inode(&names[list[j]].was, st))
                names[i].first = list[j];
        if (names[i].first == ALONE)
            list[linked++] = i;
    }
    if (list == NULL) {
        free(names);
        names = NULL;
    }
    free(list);
    return names;
}

/* Opens the new file by its first name. The descriptor; -EEXIST if it is still the old file. */
static int open_first(const struct elf_parallel *parallel, const struct name *name)
{
    struct elf_entry entry;
    struct stat now;
    int ret = elf_entry_open(&entry, parallel->options->within.root,
                             parallel->files->list[name->first], NULL);

    if (ret != 0)
        return ret;
    ret = openat(entry.folder, entry.base, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    elf_entry_close(&entry);
    if (ret < 0 || fstat(ret, &now) != 0 || !gs_same_inode(&now, &name->was))
        return ret;
    close(ret);
    return -EEXIST;
}

/* Gives the file of the first name this name as well. 0, also if it has it already. */
static int follow_name(const struct elf_parallel *parallel, const struct name *name,
                       const char *path)
{
    bool done = parallel->results[name->first] == ELF_EXIT_DONE;
    int first = done ? open_first(parallel, name) : -ENOENT, ret;
    struct elf_entry entry;
    struct elf_output output;

    if (first < 0)
        return first == -EEXIST ? 0 : first;
    ret = elf_entry_open(&entry, parallel->options->within.root, path, NULL);
    ret = ret ?: elf_output_link(&output, &entry, path, first, NULL);
    elf_entry_close(&entry);
    close(first);
    if (ret != 0)
        return ret;
    ret = elf_output_commit(&output, &name->was, !parallel->options->no_sync, NULL);
    elf_output_deinit(&output);
    return ret;
}

static void follow_all(struct work *work)
{
    struct elf_parallel *parallel = work->parallel;

    for (size_t i = 0; work->names != NULL && i < parallel->files->count; i++) {
        size_t first = work->names[i].first;
        int ret = first != ALONE
                      ? follow_name(parallel, &work->names[i], parallel->files->list[i])
                      : -1;

        if (first == ALONE)
            continue;
        if (ret < 0) { /* then it becomes a file of its own, or an error is reported */
            work_on(work, i);
            continue;
        }
        parallel->results[i] = ELF_EXIT_DONE;
        parallel->reaches[i] = parallel->reaches[first];
        work->done++;
        show_progress(work, parallel->files->list[i]);
        if (!parallel->options->quiet)
            elf_say(stdout, "%s: is still %s (hard links)\n", parallel->files->list[i],
                    parallel->files->list[first]);
    }
}

int elf_parallel_run(struct elf_parallel *parallel)
{
    const struct elf_options *options = parallel->options;
    bool changes = !options->dry_run && !options->print && !options->check;
    struct work work = {.parallel = parallel, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[256];
    unsigned started = 0;

    parallel->results = calloc(parallel->files->count + 1, sizeof *parallel->results);
    parallel->reaches = calloc(parallel->files->count + 1, sizeof *parallel->reaches);
    if (parallel->results == NULL || parallel->reaches == NULL)
        return -ENOMEM;
    work.names = changes ? find_names(options->within.root, parallel->files) : NULL;
    while (started + 1 < options->folder.jobs && started + 1 < parallel->files->count &&
           pthread_create(&threads[started], NULL, take_files, &work) == 0)
        started++;
    take_files(&work);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    follow_all(&work);
    free(work.names);
    pthread_mutex_destroy(&work.lock);
    return 0;
}

void elf_parallel_deinit(struct elf_parallel *parallel)
{
    free(parallel->results);
    free(parallel->reaches);
}
