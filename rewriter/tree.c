/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c: many files at once: finds those that reach CUDA, then does to them what the options
 * ask for.
 *
 * Two passes with a few threads each: the first only looks (so that the manifest can be written
 * before anything is changed, and a killed run can still be undone), the second acts. Owns the
 * lists and the manifest. Reports of one file are written in one piece, under a lock.
 */
#include "rewriter/tree.h"
#include "rewriter/manifest.h"
#include "rewriter/record.h"
#include "rewriter/venv.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct crew {
    const struct elf_options *options; /* of each file */
    const struct elf_paths *files;
    const char *what; /* for the progress line */
    bool silent;      /* only results count */
    bool every;       /* report errors of files that do not reach CUDA, too */
    enum elf_exit *results;
    bool *reaches;
    atomic_size_t next; /* relaxed: only hands out numbers; joining orders the results */
    pthread_mutex_t lock;
    size_t done; /* under lock */
};

static void show_progress(const struct crew *crew, const char *path)
{
    if (!isatty(STDERR_FILENO) || crew->options->quiet)
        return;
    if (crew->done < crew->files->count)
        fprintf(stderr, "\r%s %zu of %zu: %.60s\033[K", crew->what, crew->done,
                crew->files->count, strrchr(path, '/') + 1);
    else
        fputs("\r\033[K", stderr);
}

static void work_on(struct crew *crew, size_t index)
{
    const char *path = crew->files->list[index];
    char *texts[2] = {NULL, NULL};
    size_t sizes[2];
    FILE *out = open_memstream(&texts[0], &sizes[0]);
    FILE *errors = open_memstream(&texts[1], &sizes[1]);
    enum elf_exit result = ELF_EXIT_FAILED;

    if (out != NULL && errors != NULL)
        result = elf_act(path, crew->options, out, errors, &crew->reaches[index]);
    if (out != NULL)
        fclose(out);
    if (errors != NULL)
        fclose(errors);
    crew->results[index] = result;
    pthread_mutex_lock(&crew->lock);
    crew->done++;
    show_progress(crew, path);
    if (texts[0] != NULL && !crew->silent)
        fputs(texts[0], stdout);
    if (texts[1] != NULL && (result == ELF_EXIT_FAILED || crew->every ||
                             (crew->reaches[index] && result == ELF_EXIT_UNSUPPORTED)))
        fputs(texts[1], stderr);
    pthread_mutex_unlock(&crew->lock);
    free(texts[0]);
    free(texts[1]);
}

static void *work(void *argument)
{
    struct crew *crew = argument;
    size_t index;

    while ((index = atomic_fetch_add_explicit(&crew->next, 1, memory_order_relaxed)) <
           crew->files->count)
        work_on(crew, index);
    return NULL;
}

/* Acts on every file with options->jobs threads, this one included. -ENOMEM before anything
 * was done. */
static int crew_run(struct crew *crew)
{
    pthread_t threads[256];
    unsigned started = 0;

    crew->results = calloc(crew->files->count + 1, sizeof *crew->results);
    crew->reaches = calloc(crew->files->count + 1, sizeof *crew->reaches);
    if (crew->results == NULL || crew->reaches == NULL)
        return -ENOMEM;
    pthread_mutex_init(&crew->lock, NULL);
    while (started + 1 < crew->options->jobs && started + 1 < crew->files->count &&
           pthread_create(&threads[started], NULL, work, crew) == 0)
        started++;
    work(crew);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    pthread_mutex_destroy(&crew->lock);
    return 0;
}

static void crew_deinit(struct crew *crew)
{
    free(crew->results);
    free(crew->reaches);
}

struct tree {
    const struct elf_options *options;
    char folder[PATH_MAX]; /* real */
    struct elf_walk walk;
    struct elf_manifest manifest;
    struct elf_paths chosen; /* files to act on, full paths */
    enum elf_exit result;
    struct gs_err err;
};

static const char *below(const struct tree *tree, const char *path)
{
    return path + strlen(tree->folder) + (strcmp(tree->folder, "/") == 0 ? 0 : 1);
}

static int full(const struct tree *tree, const char *path, char out[PATH_MAX],
                struct gs_err *err)
{
    const char *folder = strcmp(tree->folder, "/") == 0 ? "" : tree->folder;

    if (snprintf(out, PATH_MAX, "%s/%s", folder, path) >= PATH_MAX)
        return gs_err_set(err, -ENAMETOOLONG, "%s/%s: the path is too long", folder, path);
    return 0;
}

/* The manifest was made without following links; one that came since must not lead out of the
 * folder. Of a listed link it is its own folder that counts. */
static int check_inside(const struct tree *tree, const struct elf_manifest_entry *entry,
                        const char *path, struct gs_err *err)
{
    size_t length = strcmp(tree->folder, "/") == 0 ? 0 : strlen(tree->folder);
    char real[PATH_MAX], folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (realpath(entry->target != NULL ? folder : path, real) == NULL)
        return 0; /* gone */
    if (strncmp(real, tree->folder, length) == 0 &&
        (real[length] == '/' || real[length] == '\0'))
        return 0;
    return gs_err_set(
        err, -EXDEV,
        "%s: is listed, but a link leads from there to %s; nothing was done; take "
        "the link away, or the line out of %s",
        path, real, ELF_MANIFEST_NAME);
}

/* First pass: which files would be patched, or are. */
static int choose(struct tree *tree)
{
    struct elf_options look = *tree->options;
    struct crew crew = {.options = &look, .files = &tree->walk.files, .what = "looking at"};
    int ret;

    look.dry_run = true;
    look.print = look.check = look.restore = look.json = false;
    crew.silent = true;
    ret = crew_run(&crew);
    for (size_t i = 0; ret == 0 && i < tree->walk.files.count; i++) {
        const char *path = tree->walk.files.list[i];

        if (crew.results[i] == ELF_EXIT_DONE)
            ret = elf_paths_add(&tree->chosen, path);
        else if (crew.results[i] == ELF_EXIT_FAILED ||
                 (crew.results[i] == ELF_EXIT_UNSUPPORTED && crew.reaches[i]))
            tree->result = elf_exit_graver(tree->result, crew.results[i]);
    }
    crew_deinit(&crew);
    return ret;
}

/* The wheel records of the files in `changed`. */
static int update_records(struct tree *tree, const struct elf_paths *changed)
{
    size_t lines = 0;
    int ret = 0;

    if (changed->count == 0)
        return 0;
    for (size_t i = 0; ret == 0 && i < tree->walk.records.count; i++)
        ret = elf_record_update(tree->walk.records.list[i], changed, &lines, &tree->err);
    if (lines > 0 && !tree->options->quiet)
        printf("%s: %zu lines of wheel records updated\n", tree->folder, lines);
    return ret;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int act_on_chosen(struct tree *tree, const char *what, struct elf_paths *good)
{
    struct crew crew = {
        .options = tree->options, .files = &tree->chosen, .what = what, .every = true};
    int ret = crew_run(&crew);

    for (size_t i = 0; ret == 0 && i < tree->chosen.count; i++) {
        tree->result = elf_exit_graver(tree->result, crew.results[i]);
        if (crew.results[i] == ELF_EXIT_DONE)
            ret = elf_paths_add(good, tree->chosen.list[i]);
    }
    if (good->count > 1)
        qsort(good->list, good->count, sizeof *good->list, compare_paths);
    crew_deinit(&crew);
    return ret;
}

static int patch_tree(struct tree *tree)
{
    const struct elf_options *options = tree->options;
    struct elf_paths changed = {0};
    size_t links = 0;
    int ret = choose(tree);

    if (ret == 0 && options->venv != NULL)
        ret = elf_venv_links(tree->folder, &tree->manifest, &links, &tree->err);
    for (size_t i = 0; ret == 0 && i < tree->chosen.count; i++)
        ret = elf_manifest_add(&tree->manifest, below(tree, tree->chosen.list[i]), NULL);
    if (ret == 0 && !options->dry_run && !options->print)
        ret = elf_manifest_write(&tree->manifest, tree->folder, &tree->err);
    ret = ret ?: act_on_chosen(tree, options->print ? "printing" : "patching", &changed);
    if (ret == 0 && links > 0)
        tree->result = elf_exit_graver(tree->result,
                                       elf_venv_patch(tree->folder, &tree->manifest, options));
    if (ret == 0 && !options->dry_run && !options->print)
        ret = update_records(tree, &changed);
    if (ret == 0 && tree->chosen.count == 0 && links == 0 && tree->result == ELF_EXIT_DONE)
        ret = gs_err_set(&tree->err, -ENODATA, "%s: nothing to do: no file reaches CUDA",
                         tree->folder);
    elf_paths_deinit(&changed);
    return ret;
}

/* The manifest's files that are still there. */
static int choose_listed(struct tree *tree)
{
    int ret = tree->manifest.count > 0
                  ? 0
                  : gs_err_set(&tree->err, -ENODATA,
                               "%s: nothing to do: no %s says what was patched here",
                               tree->folder, ELF_MANIFEST_NAME);

    for (size_t i = 0; ret == 0 && i < tree->manifest.count; i++) {
        const struct elf_manifest_entry *entry = &tree->manifest.entries[i];
        char path[PATH_MAX];

        ret = full(tree, entry->path, path, &tree->err);
        ret = ret ?: check_inside(tree, entry, path, &tree->err);
        if (ret != 0 || entry->target != NULL)
            continue;
        if (access(path, F_OK) == 0)
            ret = elf_paths_add(&tree->chosen, path);
        else if (tree->options->check)
            printf("%s: gone\n", path);
    }
    return ret;
}

static int restore_tree(struct tree *tree)
{
    struct elf_paths changed = {0};
    int ret = choose_listed(tree);

    ret = ret ?: act_on_chosen(tree, "restoring", &changed);
    if (tree->result == ELF_EXIT_NOTHING)
        tree->result =
            ELF_EXIT_DONE; /* an upgrade replaced it: nothing of ours is left in it */
    if (ret == 0 && !tree->options->dry_run)
        ret = update_records(tree, &changed);
    if (ret == 0 && !tree->options->dry_run)
        ret = elf_venv_restore(tree->folder, &tree->manifest, tree->options, &tree->err);
    if (ret == 0 && tree->result == ELF_EXIT_DONE && !tree->options->dry_run) {
        elf_manifest_deinit(&tree->manifest);
        ret = elf_manifest_write(&tree->manifest, tree->folder, &tree->err);
    }
    elf_paths_deinit(&changed);
    return ret;
}

/* What is listed and no longer patched, and what is neither. */
static int check_tree(struct tree *tree)
{
    struct crew crew = {.options = tree->options, .files = &tree->chosen, .what = "checking"};
    int ret = choose_listed(tree);

    ret = ret ?: crew_run(&crew);
    for (size_t i = 0; ret == 0 && i < tree->chosen.count; i++) {
        if (crew.results[i] == ELF_EXIT_NOTHING)
            fprintf(stderr,
                    "gpushare-patch: %s: was patched and is not any more (an upgrade?); patch "
                    "the tree again\n",
                    tree->chosen.list[i]);
        if (crew.results[i] != ELF_EXIT_DONE)
            tree->result = ELF_EXIT_FAILED;
    }
    crew_deinit(&crew);
    elf_paths_deinit(&tree->chosen);
    if (ret == 0 && !elf_venv_check(tree->folder, &tree->manifest))
        tree->result = ELF_EXIT_FAILED;
    ret = ret ?: choose(tree);
    for (size_t i = 0; ret == 0 && i < tree->chosen.count; i++)
        if (elf_manifest_find(&tree->manifest, below(tree, tree->chosen.list[i])) == NULL) {
            fprintf(stderr,
                    "gpushare-patch: %s: reaches CUDA and is not listed; patch the "
                    "tree again\n",
                    tree->chosen.list[i]);
            tree->result = ELF_EXIT_FAILED;
        }
    return ret;
}

static int run(struct tree *tree)
{
    const struct elf_options *options = tree->options;
    const char *name = options->tree != NULL ? options->tree : options->venv;
    char config[PATH_MAX + 16];
    int ret;

    if (realpath(name, tree->folder) == NULL)
        return gs_err_errno(&tree->err, -errno, "%s: cannot open", name);
    snprintf(config, sizeof config, "%s/pyvenv.cfg", tree->folder);
    if (options->venv != NULL && access(config, F_OK) != 0)
        return gs_err_set(&tree->err, -EINVAL,
                          "%s: is no Python environment (no pyvenv.cfg); use --tree", name);
    ret = elf_walk(&tree->walk, tree->folder, options, &tree->err);
    ret = ret ?: elf_manifest_read(&tree->manifest, tree->folder, &tree->err);
    if (ret != 0)
        return ret;
    if (options->restore)
        return restore_tree(tree);
    return options->check ? check_tree(tree) : patch_tree(tree);
}

enum elf_exit elf_tree(const struct elf_options *options)
{
    struct tree tree = {.options = options, .result = ELF_EXIT_DONE};
    int ret = run(&tree);

    if (ret != 0) {
        gs_err_set(&tree.err, ret, "%s: no memory", tree.folder);
        fprintf(stderr, "gpushare-patch: %s\n", tree.err.text);
        tree.result = elf_exit_graver(tree.result, elf_exit_of(ret));
    }
    elf_paths_deinit(&tree.chosen);
    elf_manifest_deinit(&tree.manifest);
    elf_walk_deinit(&tree.walk);
    return tree.result;
}
