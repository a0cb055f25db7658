/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_command.c: `gpusharectl cdi generate`: writes a specification with which container runtimes
 * give a container a GPU together with gpushare.
 */
#include "common/fd.h"
#include "lockd/ctl/ctl.h"
#include "lockd/ctl/cdi_host.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

/* Makes JSON of the first document of a YAML text, by libyaml. Aliases, tags, texts with NUL,
 * and keys that are no scalars, are refused. Recursion ends at DEPTH_MOST. No state. */

#define DEPTH_MOST 16

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the last one */
    unsigned depth;
    struct gs_err *err;
};

/* The parser itself may be lines ahead of the event. */
static json_t *refuse_event(struct reader *reader, const char *why)
{
    gs_err_set(reader->err, -EINVAL, "line %zu: %s", reader->event.start_mark.line + 1, why);
    return NULL;
}

/* Reads the next event. False: the text is not valid. */
static bool read_event(struct reader *reader)
{
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event) != 0)
        return true;
    gs_err_set(reader->err, -EINVAL, "line %zu: %s", reader->parser.mark.line + 1,
               reader->parser.problem != NULL ? reader->parser.problem : "no memory");
    return false;
}

static json_t *scalar_json(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    const size_t length = event->data.scalar.length;
    char *end;
    long long number;

    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return json_stringn(text, length);
    if (length == 0)
        return json_null();
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return json_boolean(*text == 't');
    errno = 0;
    number = strtoll(text, &end, 10);
    return strspn(text, "-0123456789") == length && *end == '\0' && errno == 0
               ? json_integer(number)
               : json_stringn(text, length);
}

/* A scalar without a tag, and with nothing behind a NUL. */
static bool is_text(const yaml_event_t *event)
{
    return event->type == YAML_SCALAR_EVENT && event->data.scalar.tag == NULL &&
           strlen((const char *)event->data.scalar.value) == event->data.scalar.length;
}

/* The value that begins with the last event. */
static json_t *read_value(struct reader *reader)
{
    const yaml_event_type_t type = reader->event.type;
    json_t *all;

    if (is_text(&reader->event))
        return scalar_json(&reader->event);
    if (type != YAML_SEQUENCE_START_EVENT && type != YAML_MAPPING_START_EVENT)
        return refuse_event(reader, "this form of YAML is not understood: write JSON instead");
    if (++reader->depth > DEPTH_MOST)
        return refuse_event(reader, "too deep");
    all = type == YAML_SEQUENCE_START_EVENT ? json_array() : json_object();
    while (read_event(reader)) {
        char *key = NULL;
        json_t *item = NULL;
        int code = -1;

        if (reader->event.type == YAML_SEQUENCE_END_EVENT ||
            reader->event.type == YAML_MAPPING_END_EVENT) {
            reader->depth--;
            return all;
        }
        if (type == YAML_SEQUENCE_START_EVENT) {
            item = read_value(reader);
            code = json_array_append_new(all, item);
        } else if (is_text(&reader->event)) {
            key = strdup((const char *)reader->event.data.scalar.value);
            item = read_event(reader) ? read_value(reader) : NULL;
            code = json_object_set_new(all, key, item);
        } else {
            refuse_event(reader, "a key is no word");
        }
        free(key);
        if (code != 0)
            break;
    }
    json_decref(all);
    return NULL;
}

/* NULL: the text is no YAML, or has a form that is refused; err names the line. */
static json_t *cdi_yaml_parse(const char *text, struct gs_err *err)
{
    struct reader reader = {.err = err};
    json_t *value = NULL;

    if (yaml_parser_initialize(&reader.parser) == 0)
        return NULL;
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, strlen(text));
    while (read_event(&reader)) {
        if (reader.event.type == YAML_STREAM_START_EVENT ||
            reader.event.type == YAML_DOCUMENT_START_EVENT)
            continue;
        value = read_value(&reader);
        break;
    }
    /* then the end of the document, and that of the text or another document */
    if (value != NULL && (!read_event(&reader) || !read_event(&reader))) {
        json_decref(value);
        value = NULL;
    }
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return value;
}

/* The parts to add to NVIDIA's specification. */
struct cdi_place {
    const char *door;    /* the folder of the door, here and in the container */
    const char *sockets; /* the folder of the programs' socket on the host */
    const char *version; /* version of the specification */
};

#define TEXT_MOST (4u << 20) /* bytes; nvidia-ctk writes some tens of KiB */

static char *read_text(const char *path, struct gs_err *err)
{
    GS_CLOSE_FILE FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(TEXT_MOST + 1) : NULL;
    const size_t size = text != NULL ? fread(text, 1, TEXT_MOST + 1, file) : 0;

    if (text != NULL && ferror(file) == 0 && size <= TEXT_MOST) {
        text[size] = '\0';
        return text;
    }
    if (file == NULL)
        gs_err_errno(err, -errno, "%.300s", path);
    else
        gs_err_set(err, -EIO, "%.300s cannot be read, or is too large", path);
    free(text);
    return NULL;
}

static json_t *parse_file(const char *path, struct gs_err *err)
{
    GS_FREE char *text = read_text(path, err);
    struct gs_err why = {0};
    json_error_t wrong;
    json_t *spec;

    if (text == NULL)
        return NULL;
    if (text[strspn(text, " \t\r\n")] == '{') {
        spec = json_loads(text, 0, &wrong);
        if (spec == NULL)
            gs_err_set(err, -EINVAL, "%.200s, line %d: %.160s", path, wrong.line, wrong.text);
        return spec;
    }
    spec = cdi_yaml_parse(text, &why);
    if (spec == NULL)
        gs_err_set(err, -EINVAL, "%.200s, %.200s", path,
                   why.text[0] != '\0' ? why.text : "line 1: not UTF-8 text");
    return spec;
}

static bool is_of_maker(const json_t *spec)
{
    const char *kind = json_string_value(json_object_get(spec, "kind"));

    return kind != NULL && strcmp(kind, "nvidia.com/gpu") == 0;
}

/* Reads NVIDIA's specification (kind nvidia.com/gpu): from that file or, if file is NULL,
 * from the folders that runtimes read. NULL: there is none (then err is empty), or it
 * cannot be read. */
static json_t *cdi_source_read(const char *file, struct gs_err *err)
{
    static const char *const patterns[] = {"/etc/cdi/*.json", "/etc/cdi/*.yaml",
                                           "/var/run/cdi/*.json", "/var/run/cdi/*.yaml"};
    json_t *found = file != NULL ? parse_file(file, err) : NULL;

    if (file != NULL && found != NULL && !is_of_maker(found)) {
        gs_err_set(err, -EINVAL, "%.300s is not a specification of kind nvidia.com/gpu", file);
        json_decref(found);
        return NULL;
    }
    for (size_t i = 0; file == NULL && found == NULL && i < sizeof patterns / sizeof *patterns;
         i++) {
        glob_t files = {0};

        if (glob(patterns[i], 0, NULL, &files) == 0) {
            for (size_t k = 0; k < files.gl_pathc && found == NULL; k++) {
                struct gs_err other = {0}; /* files of other devices may have any contents */

                found = parse_file(files.gl_pathv[k], &other);
                if (found != NULL && !is_of_maker(found)) {
                    json_decref(found);
                    found = NULL;
                }
            }
        }
        globfree(&files);
    }
    return found;
}

/* A 32-bit library stays as it is: gpushare does not support its programs. */
static bool is_32_bits(const char *path)
{
    GS_CLOSE_FILE FILE *file = fopen(path, "re");
    unsigned char start[5];

    return file != NULL && fread(start, 1, sizeof start, file) == sizeof start &&
           memcmp(start, "\177ELF\001", 5) == 0;
}

/* Mounts the door over each libcuda. Returns the driver's own file, or NULL. */
static char *replace_libcuda(json_t *mounts, const char *door)
{
    char *driver = NULL;
    json_t *mount;
    size_t i;

    json_array_foreach(mounts, i, mount)
    {
        const char *host = json_string_value(json_object_get(mount, "hostPath"));
        const char *path = json_string_value(json_object_get(mount, "containerPath"));
        const char *slash = path != NULL ? strrchr(path, '/') : NULL;

        if (host == NULL || slash == NULL ||
            (strncmp(slash, "/libcuda.so.", 12) != 0 && strcmp(slash, "/libcuda.so") != 0) ||
            is_32_bits(host))
            continue;
        if (driver == NULL)
            driver = realpath(host, NULL);
        if (driver == NULL)
            driver = strdup(host);
        json_object_set_new(mount, "hostPath", json_string(door));
    }
    return driver;
}

/* The hook that prefers an image's compat package would bypass the door. */
static void drop_compat_hook(json_t *hooks)
{
    json_t *hook, *word;
    size_t i, k;

    for (i = json_array_size(hooks); i-- > 0;) {
        bool compat = false;

        hook = json_array_get(hooks, i);
        json_array_foreach(json_object_get(hook, "args"), k, word)
        {
            const char *text = json_string_value(word);

            compat |= text != NULL && strcmp(text, "enable-cuda-compat") == 0;
        }
        if (compat)
            json_array_remove(hooks, i);
    }
}

/* Changes a source into gpushare's specification: the door replaces each libcuda, with the
 * driver's library behind it, and the socket's folder is mounted. 0 or -errno. */
static int cdi_make(json_t *spec, const struct cdi_place *place, struct gs_err *err)
{
    json_t *edits = json_object_get(spec, "containerEdits");
    json_t *mounts = json_object_get(edits, "mounts");
    char door[PATH_MAX], real[PATH_MAX];
    char *driver, *rest;
    const long major = strtol(place->version, &rest, 10);
    struct stat st;

    if (!json_is_array(json_object_get(spec, "devices")) || !json_is_array(mounts))
        return gs_err_set(err, -EINVAL, "the driver's specification has no devices or mounts");
    if (snprintf(door, sizeof door, "%s/" GS_DOOR_NAME, place->door) >= (int)sizeof door ||
        snprintf(real, sizeof real, "%s/" GS_DOOR_REAL, place->door) >= (int)sizeof real)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: the path is too long", place->door);
    if (access(door, R_OK) != 0)
        return gs_err_set(
            err, -ENOENT,
            "no door in %.300s: install gpushare completely, or name a folder that "
            "gpushare-door --stage made with --door",
            place->door);
    driver = replace_libcuda(mounts, door);
    if (driver == NULL)
        return gs_err_set(err, -ENOENT,
                          "the driver's specification mounts no libcuda.so: the driver is not "
                          "installed, or was not when nvidia-ctk wrote it");
    json_array_append_new(mounts, cdi_mount_json(driver, real));
    free(driver);
    json_array_append_new(mounts, cdi_mount_json(place->sockets, GS_SYSTEM_FOLDER));
    drop_compat_hook(json_object_get(edits, "hooks"));
    /* from 0.7 on: the group of the socket's folder, whose members may connect */
    if ((major > 0 || (*rest == '.' && strtol(rest + 1, NULL, 10) >= 7)) &&
        stat(place->sockets, &st) == 0 && st.st_gid != 0)
        json_object_set_new(edits, "additionalGids", json_pack("[I]", (json_int_t)st.st_gid));
    json_object_set_new(spec, "cdiVersion", json_string(place->version));
    json_object_set_new(spec, "kind", json_string("gpushare.dev/gpu"));
    json_object_del(spec, "annotations");
    return 0;
}

/* the lowest one that names devices by index; for Podman 4, Docker 25 */
#define VERSION_DEFAULT "0.5.0"
#define VERSIONS        "0.5.0, 0.6.0, 0.7.0, 0.8.0, 1.0.0, 1.1.0"

struct cdi_words {
    const char *output, *door, *nvidia, *version, *root;
};
_Static_assert(sizeof(struct cdi_words) <= CTL_WORDS_SIZE, "the words of a command");

static const struct gs_option cdi_options[] = {
    {"output", "FILE", GS_OPTION_TEXT, NULL, 0, 0,
     "write the specification to FILE (default: standard output)", NULL, 'o',
     offsetof(struct cdi_words, output)},
    {"nvidia", "FILE|none", GS_OPTION_TEXT, NULL, 0, 0,
     "take devices and libraries from FILE, which nvidia-ctk cdi generate wrote (default: in "
     "/etc/cdi or /var/run/cdi); none: from this host",
     NULL, 0, offsetof(struct cdi_words, nvidia)},
    {"door", "FOLDER", GS_OPTION_TEXT, NULL, 0, 0,
     "use the door that gpushare-door --stage made in FOLDER", GS_DOOR_FOLDER, 0,
     offsetof(struct cdi_words, door)},
    {"root", "FOLDER", GS_OPTION_TEXT, NULL, 0, 0,
     "look for the host's files below FOLDER (in a container)", NULL, 0,
     offsetof(struct cdi_words, root)},
    {"cdi-version", "NUMBER", GS_OPTION_TEXT, NULL, 0, 0,
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
    /* a pipe or a device is not replaced */
    if (stat(output, &st) == 0 && !S_ISREG(st.st_mode)) {
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

static enum ctl_exit cdi_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const struct cdi_words *given = words;

    if (count == 0 || strcmp(operands[0], "generate") != 0)
        return ctl_usage(ctl, "the word 'generate' is needed");
    if (count != 1)
        return ctl_usage(ctl, "unexpected argument '%s'", operands[1]);
    if (given->version != NULL &&
        (strlen(given->version) != sizeof "0.5.0" - 1 ||
         strstr(VERSIONS, given->version) == NULL || strchr(given->version, ' ') != NULL))
        return ctl_usage(ctl, "--cdi-version: %.40s is none of " VERSIONS, given->version);
    if (given->output != NULL && given->output[0] == '\0')
        return ctl_usage(ctl, "--output: a file is needed");
    if (generate_spec(ctl, given) == 0)
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
