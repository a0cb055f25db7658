/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c: the daemon's configuration: its defaults, the settings that follow from its values, and
 * the files (INI, read with inih), whose keys are the rows of protocol/settings.def. No state. A
 * file with any error is refused as a whole; the message names the line and tells what is allowed
 * there. A daemon that guesses is worse than a daemon that does not start.
 */
#include "lockd/start/config.h"
#include "common/fd.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <ini.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>

#define DROP_INS_MAX 256
#define LINE_MAX_INI 190 /* inih cuts lines at 200 bytes: ours end before */

void lockd_config_default(struct lockd_config *config)
{
    struct gs_err err = {0};

    *config = (struct lockd_config){.control_gid = (gid_t)-1};
    lockd_settings_default(&config->set);
    lockd_config_finish(config, &err);
}

void lockd_config_table(struct lockd_config *config,
                        struct gs_option table[LOCKD_CONFIG_KEYS + 1])
{
    size_t count = 0;

    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        if (at->scope != LOCKD_SCOPE_PROGRAM)
            table[count++] = lockd_setting_option(at, lockd_setting_place(at, &config->set));
    }
    table[count] = (struct gs_option){0};
}

int lockd_config_finish(struct lockd_config *config, struct gs_err *err)
{
    const struct lockd_values *set = &config->set;

    if (set->quantum_max != LOCKD_AUTO && set->quantum_min != LOCKD_AUTO &&
        set->quantum_min > set->quantum_max)
        return gs_err_set(err, -EINVAL, "quantum-min is above quantum-max");
    config->settings = (struct sched_settings){
        .quantum_ns = set->quantum,
        .idle_ns = set->idle,
        .reserve = set->reserve,
        .policy = (enum gs_policy)set->policy,
        .exclusive = set->exclusive == 1,
        .quantum_min_ns = set->quantum_min,
        .quantum_max_ns = set->quantum_max,
        .host = set->host,
        .balance = set->balance == 1,
        .floor_ppm = set->floor != LOCKD_AUTO ? (uint32_t)set->floor : 0,
        .share_ppm = set->switch_share != LOCKD_AUTO ? (uint32_t)set->switch_share : 0,
    };
    config->hands_over = set->hand_over == 1;
    return 0;
}

int lockd_config_group(struct lockd_config *config, struct gs_err *err)
{
    const struct group *group;

    config->control_gid = (gid_t)-1;
    if (config->set.control_group[0] == '\0')
        return 0;
    group =
        getgrnam(config->set.control_group); /* one thread, at the start and at a reload only */
    if (group == NULL)
        return gs_err_set(err, -ENOENT, "control-group: group '%s' does not exist",
                          config->set.control_group);
    config->control_gid = group->gr_gid;
    return 0;
}

/* --- one file --- */

struct reader {
    struct lockd_config *config;
    const char *path, *text;
    size_t left;
    int line, bad_line; /* the last line handed to inih; the first line in error */
    struct gs_err err;  /* without its place */
};

static int mark_bad(struct reader *reader)
{
    if (reader->bad_line == 0)
        reader->bad_line = reader->line;
    return 0; /* inih: this line is in error */
}

/* inih accepts any text behind a section's bracket. */
static bool is_odd_section(const char *line, size_t length)
{
    const char *end = length > 0 && line[0] == '[' ? memchr(line, ']', length) : NULL;

    if (end == NULL)
        return false;
    for (end++; end < line + length && strchr(" \t\r\v\f", *end) != NULL;)
        end++;
    return end < line + length && *end != ';' && *end != '#';
}

/* The fgets() of inih: returns one line without leading blanks, since inih would join an
 * indented line to the line before. */
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
                                         : "a zero byte: this is not a text file");
        mark_bad(reader);
        return NULL;
    }
    for (blanks = 0; blanks < length && (reader->text[blanks] == ' ' ||
                                         (unsigned char)(reader->text[blanks] - '\t') < 5);)
        blanks++;
    if (is_odd_section(reader->text + blanks, length - blanks)) {
        gs_err_set(&reader->err, -EINVAL, "unexpected text after the section's name");
        mark_bad(reader);
        return NULL;
    }
    memcpy(line, reader->text + blanks, length - blanks);
    memcpy(line + length - blanks, "\n", 2);
    reader->text += length + (end != NULL);
    reader->left -= length + (end != NULL);
    return line;
}

/* Appends a word to a list with commas. */
static void list_word(char *buffer, size_t size, const char *open, const char *word,
                      const char *close)
{
    const size_t at = strlen(buffer);

    snprintf(buffer + at, size - at, "%s%s%s%s", at != 0 ? ", " : "", open, word, close);
}

static int take_value(void *user, const char *section, const char *name, const char *value)
{
    struct reader *reader = user;
    const struct lockd_setting *setting = lockd_setting_find(name),
                               *class = lockd_setting_find("class"),
                               *overcommit = lockd_setting_find("overcommit");
    struct lockd_lines *lines = NULL;
    char list[256] = "", hint[64];
    const char *last = "";
    struct gs_err *err = &reader->err;

    if (setting != NULL && setting->scope == LOCKD_SCOPE_PROGRAM)
        setting = NULL; /* it is no key */

    if (setting != NULL && strcmp(setting->section, section) == 0) {
        const struct gs_option option =
            lockd_setting_option(setting, lockd_setting_place(setting, &reader->config->set));

        return gs_option_value(&option, value, err) == 0 ? 1 : mark_bad(reader);
    }
    if (strcmp(section, class->section) == 0)
        lines = &reader->config->classes;
    else if (strcmp(section, overcommit->name) == 0)
        lines = &reader->config->overcommits;
    if (lines != NULL)
        return lockd_lines_read(lines, section,
                                lines == &reader->config->classes ? class : overcommit, name,
                                value, err) == 0
                   ? 1
                   : mark_bad(reader);
    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        if (section[0] != '\0' && strcmp(at->section, section) == 0)
            list_word(list, sizeof list, "", at->name, "");
    }
    if (setting != NULL) {
        gs_err_set(err, -EINVAL, "%s belongs into section [%s]", name, setting->section);
    } else if (list[0] != '\0') {
        gs_err_set(err, -EINVAL, "unknown key '%s'; [%s] knows: %s%s", name, section, list,
                   lockd_setting_hint(name, hint, sizeof hint));
    } else {
        for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
            if (at->section[0] != '\0' && strcmp(at->section, last) != 0)
                list_word(list, sizeof list, "[", at->section, "]");
            last = at->section;
        }
        list_word(list, sizeof list, "[", overcommit->name, "]");
        gs_err_set(err, -EINVAL,
                   section[0] != '\0'
                       ? "unknown section [%s]; the sections are %s"
                       : "'%s' stands before the first section; the sections are %s",
                   section[0] != '\0' ? section : name, list);
    }
    return mark_bad(reader);
}

int lockd_config_text(struct lockd_config *config, const char *path, const char *text,
                      size_t size, struct gs_err *err)
{
    struct reader reader = {.config = config, .path = path, .text = text, .left = size};
    const int wrong = ini_parse_stream(next_line, &reader, take_value, &reader);

    if (wrong == 0 && reader.bad_line == 0)
        return 0;
    /* inih itself found an error in a line, perhaps before ours */
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
        return gs_err_set(err, -ENOMEM, "%s: out of memory while reading it", path);
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

/* Sections of the configuration whose lines set a value for the programs of users and
 * systemd units. Users are looked up when the line is read. No state but the caller's list. */

static bool is_unit(const char *name)
{
    static const char *const suffixes[] = {".service", ".scope", ".slice"};
    const size_t length = strlen(name);

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t suffix = strlen(suffixes[i]);

        if (length > suffix && strcmp(name + length - suffix, suffixes[i]) == 0)
            return true;
    }
    return false;
}

static int find_user(const char *name, uid_t *uid, struct gs_err *err)
{
    const struct passwd *user;
    unsigned long number;
    char *end;

    if (isdigit((unsigned char)name[0])) {
        errno = 0;
        number = strtoul(name, &end, 10);
        if (*end != '\0' || errno != 0 || number >= UINT32_MAX)
            return gs_err_set(err, -EINVAL, "'%s' is not the number of a user", name);
        *uid = (uid_t)number;
        return 0;
    }
    user = getpwnam(name); /* one thread, at the start and at a reload only */
    if (user == NULL)
        return gs_err_set(
            err, -EINVAL,
            "'%s' is not a user of this machine; write the name or number of one, or "
            "a systemd unit with its suffix, as in jupyter.service",
            name);
    *uid = user->pw_uid;
    return 0;
}

int lockd_lines_read(struct lockd_lines *lines, const char *section,
                     const struct lockd_setting *setting, const char *name, const char *text,
                     struct gs_err *err)
{
    struct lockd_line new = {.uid = (uid_t)-1};
    struct gs_option option = lockd_setting_option(setting, &new.value);
    size_t at = 0;
    int code;

    option.name = name; /* for the message */
    code = gs_option_value(&option, text, err);
    if (code != 0)
        return code;
    if (strlen(name) >= sizeof new.unit)
        return gs_err_set(err, -EINVAL, "%.20s...: the name is longer than %zu bytes", name,
                          sizeof new.unit - 1);
    if (is_unit(name))
        memcpy(new.unit, name, strlen(name) + 1);
    else if ((code = find_user(name, &new.uid, err)) != 0)
        return code;
    while (at < lines->count &&
           (lines->all[at].uid != new.uid || strcmp(lines->all[at].unit, new.unit) != 0))
        at++;
    if (at == LOCKD_LINES)
        return gs_err_set(err, -EINVAL, "%s: [%s] has more than %d lines", name, section,
                          LOCKD_LINES);
    lines->all[at] = new;
    lines->count += at == lines->count ? 1 : 0;
    return 0;
}

/* The last place of the unit's name in the first `length` bytes of the path; 0: there is
 * none. */
static size_t find_unit(const char *units, size_t length, const char *unit)
{
    size_t found = 0;

    for (const char *at = units; at < units + length; at += strcspn(at, "/")) {
        at += strspn(at, "/");
        if (strcspn(at, "/") == strlen(unit) && strncmp(at, unit, strlen(unit)) == 0)
            found = (size_t)(at - units) + 1;
    }
    return found;
}

/* The line of the innermost unit in the first `length` bytes of a control group's path,
 * else the line of the user. NULL: there is none. */
static const struct lockd_line *find_line(const struct lockd_lines *lines, uid_t uid,
                                          const char *units, size_t length)
{
    const struct lockd_line *line = NULL;
    size_t deepest = 0;

    for (size_t i = 0; i < lines->count; i++) {
        const struct lockd_line *each = &lines->all[i];
        const size_t depth = each->unit[0] != '\0' ? find_unit(units, length, each->unit) : 0;

        if (depth > deepest || (deepest == 0 && each->unit[0] == '\0' && each->uid == uid)) {
            deepest = depth;
            line = each;
        }
    }
    return line;
}

uint64_t lockd_overcommits_of(const struct lockd_config *config, uid_t uid, const char *units)
{
    const struct lockd_line *line = find_line(&config->overcommits, uid, units, strlen(units));

    return line != NULL ? line->value : config->set.overcommit;
}

#define CONTAINER_DIGITS 64 /* of a container's id, in the name of its control group */

/* Whether the user names the control groups inside its own: below the user's own systemd, or in
 * a container. */
static bool is_the_users(const char *part, size_t length)
{
    size_t digits = 0;

    if (length > strlen("user@.service") && strncmp(part, "user@", 5) == 0)
        return true;
    for (size_t i = 0; i < length && digits < CONTAINER_DIGITS; i++)
        digits = isxdigit((unsigned char)part[i]) ? digits + 1 : 0;
    return digits == CONTAINER_DIGITS;
}

/* The length of the part of the path that the machine's systemd or a container's runtime has
 * named. */
static size_t named_by_machine(const char *units)
{
    for (const char *at = units; *at != '\0';) {
        size_t length;

        at += strspn(at, "/");
        length = strcspn(at, "/");
        if (is_the_users(at, length))
            return (size_t)(at - units) + length;
        at += length;
    }
    return strlen(units);
}

/* The rank of a class: how much it may get before others. */
static int rank_class(enum gs_wire_class class)
{
    switch (class) {
    case GS_CLASS_BACKGROUND:
        return 0;
    case GS_CLASS_BATCH:
        return 1;
    case GS_CLASS_INTERACTIVE:
        return 3;
    default:
        return 2; /* it goes first while it is young */
    }
}

static enum gs_wire_class lower_class(enum gs_wire_class one, enum gs_wire_class other)
{
    return rank_class(other) < rank_class(one) ? other : one;
}

enum gs_wire_class lockd_classes_grant(const struct lockd_lines *classes, uid_t uid,
                                       const char *units, enum gs_wire_class asked)
{
    const struct lockd_line *given = find_line(classes, uid, units, named_by_machine(units)),
                            *named = find_line(classes, uid, units, strlen(units));
    enum gs_wire_class class;

    if (named == NULL)
        return asked;
    class = (enum gs_wire_class)named->value;
    if (given != NULL)
        class = lower_class((enum gs_wire_class)given->value, class);
    return asked == GS_CLASS_AUTO ? class : lower_class(class, asked);
}
