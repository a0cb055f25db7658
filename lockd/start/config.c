/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c: the daemon's configuration: its defaults, the table of its keys, and the files
 * (INI, read with inih). No state. A file with anything in it that is not understood is refused
 * as a whole, with the line and with what is allowed there: a daemon that guesses is worse than
 * one that does not start.
 */
#include "lockd/start/config.h"
#include "common/fd.h"
#include "lockd/protocol/wire_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DROP_INS_MAX 256
#define LINE_MAX_INI 190 /* inih cuts lines at 200 bytes: ours end before */

static const char *const sections[] = {"daemon", "scheduling", "limits", "access", NULL};

static const struct {
    const char *key;
    int section;
} places[] = {
    {"idle-exit", 0},    {"log-level", 0},       {"quantum", 1},      {"quantum-min", 1},
    {"quantum-max", 1},  {"switch-share", 1},    {"idle", 1},         {"policy", 1},
    {"exclusive", 1},    {"reserve", 1},         {"host", 1},         {"stuck", 1},
    {"hand-over", 1},    {"max-connections", 2}, {"max-programs", 2}, {"max-memory", 2},
    {"max-messages", 2}, {"control-group", 3},
};

static const char *const policies[] = {"fair", "fifo", "rr", "priority", NULL};
static const char *const stuck_words[] = {"wait", "checkpoint", NULL};
static const char *const hand_over_words[] = {"auto", "yes", "no", NULL};

const char *lockd_config_section(const char *key)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (strcmp(places[i].key, key) == 0)
            return sections[places[i].section];
    }
    return NULL;
}

void lockd_config_default(struct lockd_config *config)
{
    *config = (struct lockd_config){
        .settings =
            {
                .quantum_ns = LOCKD_AUTO,
                .idle_ns = LOCKD_AUTO,
                .reserve = LOCKD_AUTO,
                .host = LOCKD_AUTO,
            },
        .share_ppm = LOCKD_AUTO,
        .quantum_min_ns = LOCKD_AUTO,
        .quantum_max_ns = LOCKD_AUTO,
        .limits =
            {
                .connections = 2048,
                .programs = 1024,
                .memory = UINT64_MAX,
                .messages = 2000,
            },
        .idle_exit_ns = LOCKD_NEVER,
        .log_level = 6,
        .control_gid = (gid_t)-1,
    };
}

void lockd_config_table(struct lockd_config *config,
                        struct lockd_option table[LOCKD_CONFIG_KEYS + 1])
{
    struct sched_settings *settings = &config->settings;
    struct lockd_limits *limits = &config->limits;
    const struct lockd_option all[] = {
        {"idle-exit", "SECONDS|never", LOCKD_OPTION_SECONDS, &config->idle_exit_ns, 0, 86400,
         "end when no program has been connected for so long (default never)", NULL},
        {"log-level", "LEVEL", LOCKD_OPTION_LEVEL, &config->log_level, 0, 0,
         "error, warning, info or debug (default info)", NULL},
        {"quantum", "MS|auto", LOCKD_OPTION_MS, &settings->quantum_ns, 1, 3600000,
         "length of a turn (default auto: 20 times the measured cost of a switch)", NULL},
        {"quantum-min", "MS|auto", LOCKD_OPTION_MS, &config->quantum_min_ns, 1, 3600000,
         "an automatic quantum is no shorter", NULL},
        {"quantum-max", "MS|auto", LOCKD_OPTION_MS, &config->quantum_max_ns, 1, 3600000,
         "... and no longer", NULL},
        {"switch-share", "PERCENT|auto", LOCKD_OPTION_PERCENT, &config->share_ppm, 0, 50,
         "of the time that an automatic quantum lets switches cost (default auto: 5)", NULL},
        {"idle", "MS|auto", LOCKD_OPTION_MS, &settings->idle_ns, 1, 3600000,
         "how long a holder may idle while others wait (default auto)", NULL},
        {"policy", "NAME", LOCKD_OPTION_CHOICE, &config->policy, 0, 0,
         "who comes next: fair, fifo, rr or priority (default fair)", policies},
        {"exclusive", "yes|no", LOCKD_OPTION_YES, &config->exclusive, 0, 0,
         "take turns also when everything fits (default no)", NULL},
        {"reserve", "SIZE|auto", LOCKD_OPTION_SIZE, &settings->reserve, 0, LOCKD_BYTES_MAX,
         "device memory that nobody gets (default auto: 1/64 of it, 2 MiB to 1 GiB)", NULL},
        {"host", "SIZE|auto", LOCKD_OPTION_SIZE, &settings->host, 0, LOCKD_BYTES_MAX,
         "host memory for what is moved out (default auto: a share of what is available)",
         NULL},
        {"stuck", "wait|checkpoint", LOCKD_OPTION_CHOICE, &config->stuck, 0, 0,
         "a holder that does not stop: wait, or have the driver move it out (default wait)",
         stuck_words},
        {"hand-over", "auto|yes|no", LOCKD_OPTION_CHOICE, &config->hand_over, 0, 0,
         "pass device memory between one user's programs without releasing it (default auto: "
         "yes, unless stuck = checkpoint)",
         hand_over_words},
        {"max-connections", "N", LOCKD_OPTION_COUNT, &limits->connections, 1, 65536,
         "connections of one user at once (default 2048)", NULL},
        {"max-programs", "N", LOCKD_OPTION_COUNT, &limits->programs, 1, 65536,
         "programs of one user at once (default 1024)", NULL},
        {"max-memory", "SIZE|auto", LOCKD_OPTION_SIZE, &limits->memory, 1u << 20,
         LOCKD_BYTES_MAX, "what one user's programs may have on a device (default auto: all)",
         NULL},
        {"max-messages", "N", LOCKD_OPTION_COUNT, &limits->messages, 100, 1000000,
         "messages a second that are read from one connection (default 2000)", NULL},
        {"control-group", "GROUP", LOCKD_OPTION_NAME, config->control_group, 0, 0,
         "its members may change settings, as root and the daemon's user may", NULL},
    };

    _Static_assert(sizeof all / sizeof all[0] <= LOCKD_CONFIG_KEYS, "the table is too small");
    memcpy(table, all, sizeof all);
    memset(&table[sizeof all / sizeof all[0]], 0, sizeof table[0]);
}

int lockd_config_finish(struct lockd_config *config, struct gs_err *err)
{
    struct sched_settings *settings = &config->settings;
    const bool own_share = config->share_ppm != LOCKD_AUTO;

    settings->policy = (enum gs_policy)config->policy;
    settings->exclusive = config->exclusive == 1;
    settings->quantum_min_ns =
        config->quantum_min_ns == LOCKD_AUTO ? 0 : config->quantum_min_ns;
    settings->quantum_max_ns =
        config->quantum_max_ns == LOCKD_AUTO ? 0 : config->quantum_max_ns;
    settings->share_ppm = own_share ? (uint32_t)config->share_ppm : 0;
    if (own_share && config->share_ppm < 1000)
        return gs_err_set(err, -EINVAL, "switch-share: less than 0.1 percent");
    if (settings->quantum_max_ns != 0 && settings->quantum_min_ns > settings->quantum_max_ns)
        return gs_err_set(err, -EINVAL, "quantum-min is above quantum-max");
    if (config->hand_over == LOCKD_HAND_OVER_YES && config->stuck == LOCKD_STUCK_CHECKPOINT)
        return gs_err_set(
            err, -EINVAL,
            "hand-over = yes and stuck = checkpoint exclude each other: the driver "
            "checkpoints no memory that came from another process; leave hand-over out");
    config->hands_over =
        config->hand_over != LOCKD_HAND_OVER_NO && config->stuck != LOCKD_STUCK_CHECKPOINT;
    return 0;
}

int lockd_config_group(struct lockd_config *config, struct gs_err *err)
{
    const struct group *group;

    config->control_gid = (gid_t)-1;
    if (config->control_group[0] == '\0')
        return 0;
    group = getgrnam(config->control_group); /* one thread, at the start and at a reload only */
    if (group == NULL)
        return gs_err_set(err, -ENOENT, "control-group: there is no group '%s'",
                          config->control_group);
    config->control_gid = group->gr_gid;
    return 0;
}

/* --- one file --- */

struct reader {
    struct lockd_option table[LOCKD_CONFIG_KEYS + 1];
    const char *path, *text;
    size_t left;
    int line, bad_line; /* the last one handed to inih; the first one in error */
    struct gs_err err;  /* without its place */
};

static int bad(struct reader *reader)
{
    if (reader->bad_line == 0)
        reader->bad_line = reader->line;
    return 0; /* inih: this line is in error */
}

/* inih takes a section for one whatever stands behind it. */
static bool is_odd_section(const char *line, size_t length)
{
    const char *end = length > 0 && line[0] == '[' ? memchr(line, ']', length) : NULL;

    if (end == NULL)
        return false;
    for (end++; end < line + length && strchr(" \t\r\v\f", *end) != NULL;)
        end++;
    return end < line + length && *end != ';' && *end != '#';
}

/* inih's fgets: hands out one line, with no blanks before it (inih would take an indented line
 * for more of the one before). */
static char *next_line(char *line, int size, void *stream)
{
    struct reader *reader = stream;
    const char *end;
    size_t length, blanks;

    if (reader->left == 0 || reader->bad_line != 0)
        return NULL;
    reader->line++;
    end = memchr(reader->text, '\n', reader->left);
    length = end != NULL ? (size_t)(end - reader->text) : reader->left;
    if (length > LINE_MAX_INI || length + 2 > (size_t)size ||
        memchr(reader->text, '\0', length) != NULL) {
        gs_err_set(&reader->err, -EINVAL, "%s",
                   length > LINE_MAX_INI ? "the line is longer than 190 bytes"
                                         : "a zero byte: this is no text file");
        bad(reader);
        return NULL;
    }
    for (blanks = 0; blanks < length && (reader->text[blanks] == ' ' ||
                                         (unsigned char)(reader->text[blanks] - '\t') < 5);)
        blanks++;
    if (is_odd_section(reader->text + blanks, length - blanks)) {
        gs_err_set(&reader->err, -EINVAL, "something stands behind the section's name");
        bad(reader);
        return NULL;
    }
    memcpy(line, reader->text + blanks, length - blanks);
    memcpy(line + length - blanks, "\n", 2);
    reader->text += length + (end != NULL);
    reader->left -= length + (end != NULL);
    return line;
}

static void list_keys(const char *section, char *buffer, size_t size)
{
    size_t at = 0;

    for (size_t i = 0; i < sizeof places / sizeof places[0] && at < size; i++) {
        if (strcmp(sections[places[i].section], section) == 0)
            at += (size_t)snprintf(buffer + at, size - at, "%s%s", at != 0 ? ", " : "",
                                   places[i].key);
    }
}

static int take_value(void *user, const char *section, const char *name, const char *value)
{
    struct reader *reader = user;
    const char *belongs = lockd_config_section(name);
    char keys[256] = "";

    if (belongs != NULL && strcmp(belongs, section) == 0)
        return lockd_option_value(lockd_options_find(reader->table, name), value,
                                  &reader->err) == 0
                   ? 1
                   : bad(reader);
    list_keys(section, keys, sizeof keys);
    if (belongs != NULL)
        gs_err_set(&reader->err, -EINVAL, "%s belongs into section [%s]", name, belongs);
    else if (keys[0] != '\0')
        gs_err_set(&reader->err, -EINVAL, "unknown key '%s'; [%s] knows: %s", name, section,
                   keys);
    else
        gs_err_set(&reader->err, -EINVAL,
                   "unknown section [%s]; there are [daemon], [scheduling], [limits], [access]",
                   section);
    return bad(reader);
}

int lockd_config_text(struct lockd_config *config, const char *path, const char *text,
                      size_t size, struct gs_err *err)
{
    struct reader reader = {.path = path, .text = text, .left = size};
    int wrong;

    lockd_config_table(config, reader.table);
    wrong = ini_parse_stream(next_line, &reader, take_value, &reader);
    if (wrong == 0 && reader.bad_line == 0)
        return 0;
    /* inih found the line wrong itself, maybe before one that we did */
    if (reader.bad_line == 0 || (wrong > 0 && wrong < reader.bad_line)) {
        reader.bad_line = wrong;
        reader.err = (struct gs_err){0};
        gs_err_set(&reader.err, -EINVAL,
                   "expected [section], key = value, or a comment that begins with #");
    }
    return gs_err_set(err, -EINVAL, "%s:%d: %.300s", path, reader.bad_line, reader.err.text);
}

/* --- files --- */

static int read_file(struct lockd_config *config, const char *path, bool must_exist,
                     struct gs_err *err)
{
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    GS_FREE char *text = NULL;
    size_t size = 0;
    struct stat st;
    ssize_t got;

    if (fd < 0 && errno == ENOENT && !must_exist)
        return 0;
    if (fd < 0 || fstat(fd, &st) != 0)
        return gs_err_errno(err, -errno, "%s: cannot read it", path);
    if (!S_ISREG(st.st_mode))
        return gs_err_set(err, -EINVAL, "%s: not a file", path);
    text = malloc(LOCKD_CONFIG_MAX + 1);
    if (text == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory to read it", path);
    do {
        got = read(fd, text + size, LOCKD_CONFIG_MAX + 1 - size);
        size += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    if (got < 0)
        return gs_err_errno(err, -errno, "%s: cannot read it", path);
    if (size > LOCKD_CONFIG_MAX)
        return gs_err_set(err, -EFBIG, "%s: larger than %d bytes", path, LOCKD_CONFIG_MAX);
    return lockd_config_text(config, path, text, size, err);
}

static int is_drop_in(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 5 &&
           strcmp(entry->d_name + length - 5, ".conf") == 0;
}

int lockd_config_files(struct lockd_config *config, const char *path, bool must_exist,
                       struct gs_err *err)
{
    struct dirent **entries = NULL;
    char folder[512], file[1024];
    int code = read_file(config, path, must_exist, err), count;

    if (code != 0)
        return code;
    if ((size_t)snprintf(folder, sizeof folder, "%s.d", path) >= sizeof folder)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
    count = scandir(folder, &entries, is_drop_in, alphasort);
    if (count < 0)
        return errno == ENOENT ? 0 : gs_err_errno(err, -errno, "%s: cannot read it", folder);
    if (count > DROP_INS_MAX)
        code = gs_err_set(err, -E2BIG, "%s: more than %d files", folder, DROP_INS_MAX);
    for (int i = 0; i < count && code == 0; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, entries[i]->d_name);
        code = read_file(config, file, true, err);
    }
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return code;
}
