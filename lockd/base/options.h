/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: a table of command-line options, for the daemon and gpusharectl: parsing, bounds
 * and --help come from it.
 */
#pragma once

#include "common/err.h"
#include "common/place.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum lockd_option_kind {
    LOCKD_OPTION_FLAG,    /* bool *: set */
    LOCKD_OPTION_TEXT,    /* const char **: points into argv */
    LOCKD_OPTION_SECONDS, /* uint64_t *: ns, fractions allowed; or "never" for UINT64_MAX */
    LOCKD_OPTION_MS,      /* uint64_t *: ns; or "auto" */
    LOCKD_OPTION_SIZE,    /* uint64_t *: bytes; or "auto" */
    LOCKD_OPTION_COUNT,   /* uint64_t *: a whole number; or "none" for UINT64_MAX */
    LOCKD_OPTION_SIGNED,  /* int64_t *: a whole number from -high to high */
    LOCKD_OPTION_PERCENT, /* uint64_t *: millionths; or "auto" */
    LOCKD_OPTION_YES,     /* uint64_t *: yes or no, as 1 or 0 */
    LOCKD_OPTION_CHOICE,  /* uint64_t *: one of the argument's words, as its place there */
    LOCKD_OPTION_NAME,    /* char[LOCKD_NAME_SIZE]: a copy */
};

#define LOCKD_NAME_SIZE 64

struct lockd_option {
    const char *name;     /* without dashes */
    const char *argument; /* in --help; NULL for flags */
    enum lockd_option_kind kind;
    void *value;
    uint64_t low,
        high; /* bounds of a number, in the unit of the value: ns, bytes, millionths */
    const char *help;
    const char *initial; /* the default, for --help; NULL or "": none to show */
    char letter;         /* its short form: -h; 0: none */
    size_t field;        /* lockd_options_read(): offset of the value, which is NULL */
};

/* Reads a command line with getopt_long(). stop: reading ends at the first argument that is
 * no option (the name of a command); else options may stand anywhere before "--", and the
 * arguments are moved to the end of argv. A negative number is an argument. *index: in:
 * where to begin, out: the first argument. 0, or -EINVAL with a text for the user. */
int lockd_options_parse(const struct lockd_option *table, bool stop, int argc, char **argv,
                        int *index, struct gs_err *err);
/* The same with a table in which each row has the offset in *into at which its value is stored,
 * so that one constant table serves parsing, help and completion. */
int lockd_options_read(const struct lockd_option *table, void *into, bool stop, int argc,
                       char **argv, int *index, struct gs_err *err);
/* The options of that table that a shell may offer. Returns the number of rows written, at most
 * LOCKD_OPTIONS_MAX. */
struct gs_complete_option;
#define LOCKD_OPTIONS_MAX 40
size_t lockd_options_complete(const struct lockd_option *table,
                              struct gs_complete_option *rows);
/* Reads one value as that kind of option would. Used for `gpusharectl set` and the
 * configuration file too. */
int lockd_option_value(const struct lockd_option *option, const char *text, struct gs_err *err);
/* The word for UINT64_MAX of that kind ("auto", "never" or "none"), if the argument offers it;
 * else NULL. */
const char *lockd_option_word(enum lockd_option_kind kind, const char *argument);
/* The daemon's sockets: the socket that --socket names, else the usual places (common/place.h).
 * option: NULL without --socket. 0 or -EINVAL. */
int lockd_socket_places(const char *option, struct gs_places *places, struct gs_err *err);
void lockd_options_help(const struct lockd_option *table, FILE *file);
