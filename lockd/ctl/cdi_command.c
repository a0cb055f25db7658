/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_command.c: `gpusharectl cdi generate`: writes a specification with which container runtimes
 * give a container a GPU together with gpushare.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockd/ctl/ask.h"
#include "lockd/ctl/cdi_host.h"
#include "lockd/ctl/cdi_make.h"
#include "lockd/ctl/ctl.h"

#define VERSION_DEFAULT                                                                        \
    "0.5.0" /* the lowest one that names devices by index; for Podman 4, Docker 25 */

#define VERSIONS "0.5.0, 0.6.0, 0.7.0, 0.8.0, 1.0.0, 1.1.0"

struct cdi_words {
    const char *output, *door, *nvidia, *version, *root;
};

static const struct lockd_option cdi_options[] = {
    {"output", "FILE", LOCKD_OPTION_TEXT, NULL, 0, 0,
     "write the specification to FILE (default: standard output)", NULL, 'o',
     offsetof(struct cdi_words, output)},
    {"nvidia", "FILE|none", LOCKD_OPTION_TEXT, NULL, 0, 0,
     "take devices and libraries from FILE, which nvidia-ctk cdi generate wrote (default: in "
     "/etc/cdi or /var/run/cdi); none: from this host",
     NULL, 0, offsetof(struct cdi_words, nvidia)},
    {"door", "FOLDER", LOCKD_OPTION_TEXT, NULL, 0, 0,
     "use the door that gpushare-door --stage made in FOLDER", GS_DOOR_FOLDER, 0,
     offsetof(struct cdi_words, door)},
    {"root", "FOLDER", LOCKD_OPTION_TEXT, NULL, 0, 0,
     "look for the host's files below FOLDER (in a container)", NULL, 0,
     offsetof(struct cdi_words, root)},
    {"cdi-version", "NUMBER", LOCKD_OPTION_TEXT, NULL, 0, 0,
     "write this version of the specification; from 0.7.0 on, containers also get the group "
     "that may connect",
     VERSION_DEFAULT, 0, offsetof(struct cdi_words, version)},
    {0},
};

static int dump_spec(const json_t *spec, int fd)
{
    FILE *file = fdopen(fd, "w");
    int code = 0;

    if (file == NULL) {
        code = -errno;
        close(fd);
        return code;
    }
    errno = 0;
    if (json_dumpf(spec, file, JSON_INDENT(2) | JSON_SORT_KEYS) != 0 || putc('\n', file) == EOF)
        code = errno != 0 ? -errno : -EIO;
    if (fclose(file) != 0 && code == 0)
        code = -errno;
    return code;
}

/* Runtimes, also of ordinary users, read the folder at any time: the file appears as a whole,
 * and is readable by all. */
static int replace_file(const json_t *spec, const char *output)
{
    char beside[PATH_MAX];
    int fd, code;

    if (snprintf(beside, sizeof beside, "%s.new", output) >= (int)sizeof beside)
        return -ENAMETOOLONG;
    unlink(beside); /* left by a run that was killed */
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    fchmod(fd, 0644);
    code = dump_spec(spec, fd);
    if (code == 0 && rename(beside, output) != 0)
        code = -errno;
    if (code != 0)
        unlink(beside);
    return code;
}

static int write_spec(const json_t *spec, const char *output, struct gs_err *err)
{
    struct stat st;
    int fd, code;

    if (output == NULL) {
        if (json_dumpf(spec, stdout, JSON_INDENT(2) | JSON_SORT_KEYS) != 0 ||
            putchar('\n') == EOF)
            return gs_err_set(err, -EIO, "cannot write to standard output");
        return 0;
    }
    if (stat(output, &st) == 0 &&
        !S_ISREG(st.st_mode)) { /* a pipe or a device is not replaced */
        fd = open(output, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        code = fd < 0 ? -errno : dump_spec(spec, fd);
    } else {
        code = replace_file(spec, output);
    }
    return code == 0 ? 0 : gs_err_errno(err, code, "%.300s", output);
}

static json_t *read_driver(const struct cdi_words *words, struct gs_err *err)
{
    char root[PATH_MAX] = "";
    json_t *spec = NULL;

    if (words->root != NULL && realpath(words->root, root) == NULL) {
        gs_err_errno(err, -errno, "%.300s", words->root);
        return NULL;
    }
    if (strcmp(root, "/") == 0)
        root[0] = '\0';

    if (words->nvidia == NULL || strcmp(words->nvidia, "none") != 0)
        spec = cdi_source_read(words->nvidia, err);
    return spec != NULL || err->code != 0 ? spec : cdi_host_read(root, err);
}

static int generate_spec(struct ctl *ctl, const struct cdi_words *words)
{
    char sockets[GS_PATH_SIZE] = GS_SYSTEM_FOLDER, door[PATH_MAX];
    struct cdi_place place = {.door = GS_DOOR_FOLDER, .version = VERSION_DEFAULT};
    json_t *spec;
    int code;

    if (ctl->path_by_user) {
        char *slash;

        memcpy(sockets, ctl->places.path[0], sizeof sockets);
        slash = strrchr(sockets, '/');
        if (slash != NULL && slash != sockets)
            *slash = '\0';
    }
    place.sockets = sockets;
    if (words->door != NULL && realpath(words->door, door) == NULL)
        return gs_err_errno(&ctl->err, -errno, "%.300s", words->door);
    if (words->door != NULL)
        place.door = door;
    if (words->version != NULL)
        place.version = words->version;
    spec = read_driver(words, &ctl->err);
    if (spec == NULL)
        return ctl->err.code;
    cdi_host_name_devices(spec);
    code = cdi_make(spec, &place, &ctl->err);
    if (code == 0)
        code = write_spec(spec, words->output, &ctl->err);
    json_decref(spec);
    return code;
}

static bool is_known_version(const char *version)
{
    const size_t length = strlen(version);
    const char *at = strstr(VERSIONS, version);

    return length == sizeof "0.5.0" - 1 && at != NULL && strchr(version, ' ') == NULL;
}

static enum ctl_exit cdi_run(struct ctl *ctl, int argc, char **argv)
{
    struct cdi_words words = {0};
    int index = 1;

    if (lockd_options_read(cdi_options, &words, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_cdi, "%s", ctl->err.text);
    if (index == argc || strcmp(argv[index], "generate") != 0)
        return ctl_usage(&ctl_cdi, "the word 'generate' is needed");
    if (index != argc - 1)
        return ctl_usage(&ctl_cdi, "unexpected argument '%s'", argv[index + 1]);
    if (words.version != NULL && !is_known_version(words.version))
        return ctl_usage(&ctl_cdi, "--cdi-version: %.40s is none of " VERSIONS, words.version);
    if (words.output != NULL && words.output[0] == '\0')
        return ctl_usage(&ctl_cdi, "--output: a file is needed");
    if (generate_spec(ctl, &words) == 0)
        return ctl_done(CTL_OK);
    ctl_fail(ctl);
    return CTL_FAILED; /* -ENOENT means a missing file here, not a missing daemon */
}

const struct ctl_command ctl_cdi = {
    .name = "cdi",
    .arguments = "generate",
    .help = "write a specification (CDI) for containers that share a GPU",
    .run = cdi_run,
    .options = cdi_options,
};
