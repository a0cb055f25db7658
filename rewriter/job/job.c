/* SPDX-License-Identifier: Apache-2.0
 *
 * job.c: opens a file and decides what to do with it.
 *
 * Owns the descriptor and everything read from it. One thread per job.
 */
#include "rewriter/job/job.h"
#include "rewriter/verify/verify.h"
#include "rewriter/elf/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

enum elf_exit elf_exit_of(int error)
{
    return error == 0          ? ELF_EXIT_DONE
           : error == -ENOEXEC ? ELF_EXIT_UNSUPPORTED
           : error == -ENODATA ? ELF_EXIT_NOTHING
                               : ELF_EXIT_FAILED;
}

static int refuse_kind(const char *name, struct gs_err *err)
{
    return elf_refuse(name, err, "is not a regular file; name a program or library");
}

/* The time of the original's last change: from the note, or the file's own time if it still is
 * the original. */
static struct timespec find_time(const struct elf_job *job)
{
    struct timespec time = job->stat.st_mtim;
    char text[64] = "", *point, *end;
    long long seconds;
    long nanoseconds;

    if (job->patched == ELF_NOTE_FOUND)
        elf_note_value(job->note.text, "mtime", text, sizeof text);
    seconds = strtoll(text, &point, 10);
    if (point == text || *point != '.')
        return time;
    nanoseconds = strtol(point + 1, &end, 10);
    if (end == point + 10 && nanoseconds >= 0)
        time = (struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = nanoseconds};
    return time;
}

int elf_job_open(struct elf_job *job, const char *name, const struct elf_options *options,
                 struct gs_err *err)
{
    char is_signed[8] = "";
    int ret;

    memset(job, 0, sizeof *job);
    job->fd = job->entry.folder = -1;
    job->name = name;
    job->options = options;
    if (options->within.root != NULL)
        snprintf(job->path, sizeof job->path, "%s", name);
    else if (realpath(name, job->path) == NULL)
        return gs_err_errno(err, -errno, "%s: cannot open", name);
    if (options->within.root == NULL)
        elf_environment_left(name, job->path, job->environment);
    ret = elf_entry_open(&job->entry, options->within.root, job->path, err);
    if (ret != 0)
        return ret;
    job->fd = openat(job->entry.folder, job->entry.base,
                     O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (job->fd < 0 && errno == ENXIO) /* a socket */
        return refuse_kind(name, err);
    if (job->fd < 0 && errno == ELOOP)
        return gs_err_set(err, -ELOOP,
                          "%s: became a symbolic link in the meantime; it is left unchanged",
                          name);
    if (job->fd < 0)
        return gs_err_errno(err, -errno, "%s: cannot open", name);
    if (fstat(job->fd, &job->stat) != 0)
        return gs_err_errno(err, -errno, "%s: cannot stat", name);
    if (S_ISDIR(job->stat.st_mode))
        return elf_refuse(name, err, "is a folder; name the files in it");
    if (!S_ISREG(job->stat.st_mode))
        return refuse_kind(name, err);
    job->raw =
        (struct elf_source){.name = name, .fd = job->fd, .size = (uint64_t)job->stat.st_size};
    job->patched = elf_note_find(&job->note, &job->raw);
    job->changed = find_time(job);
    /* no copy of the original gets a signature that it has in its attributes */
    if (job->patched == ELF_NOTE_FOUND)
        elf_note_value(job->note.text, "signed", is_signed, sizeof is_signed);
    job->signed_before =
        *is_signed == '1' ||
        (job->patched == ELF_NOTE_NONE && (fgetxattr(job->fd, "security.ima", NULL, 0) > 0 ||
                                           fgetxattr(job->fd, "security.evm", NULL, 0) > 0));
    return 0;
}

int elf_job_read(struct elf_job *job, struct gs_err *err)
{
    struct elf_source source = job->raw;
    int ret;

    if (job->patched == ELF_NOTE_FOUND) {
        if (job->note.lost.code != 0)
            return gs_err_set(err, job->note.lost.code, "%s", job->note.lost.text);
        if (job->note.relaid)
            return elf_refuse(job->name, err,
                              "strip or objcopy ran after it was patched; restore it with "
                              "--restore, then patch it again");
        source = elf_note_undone(&job->note, &source);
    }
    ret = elf_image_read(&job->image, &source, err);
    job->is_closed = ret == -ENOEXEC && elf_facts_in_bytes(&source);
    ret = ret ?: elf_facts_read(&job->facts, &job->image, job->options->print, err);
    if (ret != 0)
        return ret;
    job->scope = job->options->scope != ELF_SCOPE_AUTO ? (enum elf_scope)job->options->scope
                 : elf_image_is_program(&job->image)   ? ELF_SCOPE_PROCESS
                                                       : ELF_SCOPE_OBJECT;
    if (elf_facts_cuda(&job->facts) || job->options->reach == NULL)
        return 0;
    ret = elf_way_find(&job->way, job->options->reach, job->path,
                       job->scope == ELF_SCOPE_PROCESS, job->options->within.plugin);
    return ret == 0 ? 0 : gs_err_set(err, ret, "%s: no memory", job->name);
}

bool elf_job_reaches(const struct elf_job *job)
{
    return job->is_closed || (job->image.segments != NULL &&
                              (elf_facts_cuda(&job->facts) || job->way.kind != ELF_WAY_NONE));
}

void elf_job_deinit(struct elf_job *job)
{
    elf_plan_deinit(&job->plan);
    elf_facts_deinit(&job->facts);
    elf_image_deinit(&job->image);
    elf_note_deinit(&job->note);
    if (job->fd >= 0)
        close(job->fd);
    job->fd = -1;
    elf_entry_close(&job->entry);
}

/* Whether the image needs a library whose name contains that. */
static bool needs_library(const struct elf_image *image, const char *part)
{
    for (size_t i = 0; i < image->dynamic.count; i++)
        if (image->dynamic.entries[i].d_tag == DT_NEEDED &&
            strstr(elf_image_string(image, image->dynamic.entries[i].d_un.d_val), part) != NULL)
            return true;
    return false;
}

/* Refuses the parts of gpushare: they name the driver, but must not be routed. The library in the
 * driver's place has the driver's name; the libraries that it loads show what it is. */
static int refuse_own(const struct elf_job *job, struct gs_err *err)
{
    static const char *const names[] = {"gpushare-patch", "gpushare-lockd", "gpusharectl",
                                        "gpushare-door"};
    const char *base = strrchr(job->path, '/') + 1;
    bool own = strncmp(job->image.dynamic.soname != NULL ? job->image.dynamic.soname : "",
                       "libgpushare.so", 14) == 0 ||
               needs_library(&job->image, GS_DOOR_REAL);

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        own |= strcmp(base, names[i]) == 0;
    return own ? gs_err_set(err, -ENODATA, "%s: nothing to do: it is part of gpushare",
                            job->name)
               : 0;
}

/* Refuses the system's own libraries and the driver: the objects that provide everybody's dlsym
 * must stay as they are. */
static int refuse_system(const struct elf_job *job, struct gs_err *err)
{
    static const char *const names[] = {"libc.so",       "ld-linux", "libdl.so",
                                        "libpthread.so", "librt.so", "libcuda.so"};
    const char *base = strrchr(job->path, '/') + 1;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t length = strlen(names[i]);

        if ((job->image.dynamic.soname != NULL &&
             strncmp(job->image.dynamic.soname, names[i], length) == 0) ||
            (job->image.dynamic.soname == NULL && strncmp(base, names[i], length) == 0))
            return elf_refuse(
                job->name, err,
                "is %s itself, which all programs share; patch the program instead",
                job->image.dynamic.soname != NULL ? job->image.dynamic.soname : base);
    }
    return 0;
}

static int refuse_privileged(const struct elf_job *job, struct gs_err *err)
{
    bool capable = fgetxattr(job->fd, "security.capability", NULL, 0) > 0;

    if (job->options->force || job->options->output != NULL ||
        (!(job->stat.st_mode & (S_ISUID | S_ISGID)) && !capable))
        return 0;
    return elf_refuse(job->name, err,
                      "runs with another user's rights (%s), so the runtime library would too; "
                      "use --force to allow that",
                      capable ? "file capabilities" : "setuid or setgid");
}

static int decide_by_content(const struct elf_job *job, struct gs_err *err)
{
    const struct elf_facts *facts = &job->facts;

    if (job->options->within.programs_only && job->scope == ELF_SCOPE_OBJECT)
        return gs_err_set(err, -ENODATA,
                          "%s: nothing to do: the patched program routes its calls", job->name);
    if (job->scope == ELF_SCOPE_OBJECT && facts->import_count == 0) {
        if (facts->needed != NULL)
            return gs_err_set(
                err, -ENODATA,
                "%s: nothing to do: it uses CUDA only through %s; patch the program", job->name,
                facts->needed);
        return gs_err_set(err, -ENODATA,
                          "%s: nothing to do: it imports no driver function and no dlsym",
                          job->name);
    }
    if (elf_facts_cuda(facts) || job->options->any)
        return 0;
    if (job->scope == ELF_SCOPE_PROCESS &&
        (job->way.kind != ELF_WAY_NONE || elf_environment_is_python(job->path) ||
         elf_environment_is_python(job->name)))
        return 0; /* an interpreter loads CUDA only when a script imports it */
    return gs_err_set(err, -ENODATA,
                      "%s: nothing to do: it does not use CUDA%s (use --any for an interpreter "
                      "or a program that loads CUDA later)",
                      job->name,
                      job->way.in_vain ? ", nor does a plug-in that was found beside it" : "");
}

#define TIME "mtime=" /* the last line of the marker */

static void make_marker(struct elf_job *job)
{
    snprintf(job->marker, sizeof job->marker,
             "tool=gpushare-patch %s\nscope=%s\nruntime=%s\ntable=%08x\n%s%s%s%s" TIME
             "%lld.%09ld\n",
             GS_VERSION, job->scope == ELF_SCOPE_PROCESS ? "process" : "object", job->runtime,
             elf_names_fingerprint(), *job->origin ? "origin=" : "", job->origin,
             *job->origin ? "\n" : "", job->signed_before ? "signed=1\n" : "",
             (long long)job->changed.tv_sec, job->changed.tv_nsec);
}

/* A copy in another folder must find its libraries where the original did, also after it is
 * patched again. */
static int find_origin(struct elf_job *job, struct gs_err *err)
{
    if (!elf_origin_is_used(&job->image))
        return 0;
    if (job->patched == ELF_NOTE_FOUND)
        elf_note_value(job->note.text, "origin", job->origin, sizeof job->origin);
    if (*job->origin == '\0' && job->options->within.origin != NULL)
        snprintf(job->origin, sizeof job->origin, "%s", job->options->within.origin);
    if (strpbrk(job->origin, "\n$:") == NULL)
        return 0;
    return elf_refuse(
        job->name, err,
        "finds its libraries relative to its own folder ($ORIGIN), and the loader would "
        "misread that folder's name in a copy; patch the file itself");
}

int elf_job_decide(struct elf_job *job, struct gs_err *err)
{
    int ret = refuse_own(job, err) ?: refuse_system(job, err);

    if (ret == 0 && needs_library(&job->image, "libgpushare.so"))
        return gs_err_set(err, -ENODATA,
                          "%s: nothing to do: it was already linked with gpushare-cc",
                          job->name);
    ret = ret ?: refuse_privileged(job, err);
    ret = ret ?: find_origin(job, err);
    ret = ret ?: decide_by_content(job, err);
    ret =
        ret ?: elf_location_find(job->runtime, job->options->runtime, job->options->force, err);
    if (ret == 0 && !job->options->force)
        ret = elf_location_check(job->runtime, job->name, job->image.header.e_machine, err);
    if (ret != 0)
        return ret;
    make_marker(job);
    return 0;
}

bool elf_job_is_current(struct elf_job *job)
{
    char scope[16];

    if (job->patched == ELF_NOTE_NONE)
        return false;
    if (job->note.relaid) { /* then the original was not read: use the note's scope */
        elf_note_value(job->note.text, "scope", scope, sizeof scope);
        job->scope = strcmp(scope, "process") == 0 ? ELF_SCOPE_PROCESS : ELF_SCOPE_OBJECT;
        if (job->options->scope != ELF_SCOPE_AUTO)
            job->scope = (enum elf_scope)job->options->scope;
        elf_note_value(job->note.text, "origin", job->origin, sizeof job->origin);
        if (elf_location_find(job->runtime, job->options->runtime, job->options->force, NULL))
            return false;
        make_marker(job);
    }
    /* the time, which comes last, says nothing about how the file was patched */
    return strncmp(job->note.text, job->marker,
                   (size_t)(strstr(job->marker, "\n" TIME) - job->marker) + sizeof("\n" TIME) -
                       1) == 0;
}

int elf_job_read_now(const struct elf_job *job, struct elf_image *now, struct gs_err *err)
{
    struct gs_err why = {0};
    int ret = elf_image_read(now, &job->raw, &why);

    if (ret == -ENOEXEC && job->note.moved)
        return elf_refuse(
            job->name, err,
            "strip or objcopy ran after it was patched and broke it; install it again from its "
            "package or build it again, strip it first, then patch it");
    return ret != 0 ? gs_err_set(err, ret, "%s", why.text) : 0;
}

int elf_job_loads_runtime(const struct elf_job *job, struct gs_err *err)
{
    char runtime[PATH_MAX];
    struct elf_image now;
    bool loads = false;
    int ret = elf_job_read_now(job, &now, err);

    if (ret != 0)
        return ret;
    elf_note_value(job->note.text, "runtime", runtime, sizeof runtime);
    for (size_t i = 0; i < now.dynamic.count; i++)
        loads |=
            now.dynamic.entries[i].d_tag == DT_NEEDED &&
            strcmp(elf_image_string(&now, now.dynamic.entries[i].d_un.d_val), runtime) == 0;
    elf_image_deinit(&now);
    if (loads)
        return 0;
    return elf_refuse(
        job->name, err,
        "was patched, but no longer loads %s (was it edited with patchelf or strip?); restore "
        "it with --restore or from its package, then patch it again",
        runtime);
}

/* Patching again starts from the original. */
static int refuse_edited(struct elf_job *job, struct gs_err *err)
{
    char runtime[PATH_MAX], origin[PATH_MAX];

    if (job->patched == ELF_NOTE_NONE ||
        (job->options->output == NULL && elf_job_is_current(job)))
        return 0;
    elf_note_value(job->note.text, "runtime", runtime, sizeof runtime);
    elf_note_value(job->note.text, "origin", origin, sizeof origin);
    return elf_verify_untouched(&job->image, &job->raw, runtime, *origin ? origin : NULL, err);
}

int elf_job_refuse_left(const struct elf_job *job, struct gs_err *err)
{
    if (*job->environment == '\0' || job->options->output != NULL)
        return 0;
    return elf_refuse(
        job->name, err,
        "links to %s outside its Python environment, which others use too; run gpushare-patch "
        "--venv %s to give the environment a patched copy of its own, or name that file itself",
        job->path, job->environment);
}

int elf_job_plan(struct elf_job *job, struct gs_err *err)
{
    const struct elf_wish wish = {.runtime = job->runtime,
                                  .marker = job->marker,
                                  .origin = *job->origin ? job->origin : NULL};

    bool changes = job->options->output == NULL && !elf_job_is_current(job);
    int ret = changes ? elf_job_refuse_left(job, err) : 0;

    ret = ret ?: refuse_edited(job, err);
    return ret ?: elf_plan_make(&job->plan, &job->image, &job->facts, &wish, err);
}
