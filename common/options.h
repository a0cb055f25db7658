/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: a table of command-line options: parsing, bounds, --help and completion come from it.
 */
#pragma once

#include "common/place.h"

#include <stdint.h>
#include <stdio.h>

enum gs_option_kind {
    GS_OPTION_FLAG,    /* bool *: set */
    GS_OPTION_TEXT,    /* const char **: points into argv */
    GS_OPTION_SECONDS, /* uint64_t *: ns, fractions allowed; or "never" for UINT64_MAX */
    GS_OPTION_MS,      /* uint64_t *: ns; or "auto" */
    GS_OPTION_SIZE,    /* uint64_t *: bytes; or "auto" */
    GS_OPTION_COUNT,   /* uint64_t *: a whole number; or "none" for UINT64_MAX */
    GS_OPTION_SIGNED,  /* int64_t *: a whole number from -high to high */
    GS_OPTION_PERCENT, /* uint64_t *: millionths; or "auto" */
    GS_OPTION_YES,     /* uint64_t *: yes or no, as 1 or 0 */
    GS_OPTION_CHOICE,  /* uint64_t *: one of the argument's words, as its place there */
    GS_OPTION_NAME,    /* char[GS_OPTION_NAME_SIZE]: a copy */
    GS_OPTION_LIST,    /* struct gs_option_list *: each time one more text */
};

#define GS_OPTION_NAME_SIZE 64
#define GS_OPTION_LIST_MOST 64
#define GS_OPTIONS_MAX      40

struct gs_option_list {
    const char *texts[GS_OPTION_LIST_MOST];
    size_t count;
};

struct gs_option {
    const char *name;     /* without dashes */
    const char *argument; /* in --help; NULL for flags; "[DIR]": may be left out */
    enum gs_option_kind kind;
    void *value;
    uint64_t low,
        high; /* bounds of a number, in the unit of the value: ns, bytes, millionths */
    const char *help;
    const char *initial; /* the default, for --help; NULL or "": none to show */
    char letter;         /* its short form: -h; 0: none */
    size_t field;        /* offset of the value, if value is NULL */
};

/* The text of an argument that was left out. */
extern const char gs_option_left_out[];

/* Reads a command line with getopt_long(). into: to it the offsets of fields are added, so that
 * one constant table serves parsing, help and completion. stop: reading ends at the first
 * argument that is no option (the name of a command); else options may stand anywhere before
 * "--", and the arguments are moved to the end of argv. A negative number is an argument.
 * *index: in: where to begin, out: the first argument. 0, or -EINVAL with a text for the user. */
int gs_options_parse(const struct gs_option *table, void *into, bool stop, int argc,
                     char **argv, int *index, struct gs_err *err);
/* Reads one value as that kind of option would. Used for `gpusharectl set` and the
 * configuration file too. */
int gs_option_value(const struct gs_option *option, const char *text, struct gs_err *err);
/* The word for UINT64_MAX of that kind ("auto", "never" or "none"), if the argument offers it;
 * else NULL. */
const char *gs_option_word(enum gs_option_kind kind, const char *argument);
/* The daemon's sockets: the socket that --socket names, else the usual places (common/place.h).
 * option: NULL without --socket. 0 or -EINVAL. */
int gs_socket_places(const char *option, struct gs_places *places, struct gs_err *err);
void gs_options_help(const struct gs_option *table, FILE *file);
/* A row of --help: writes `typed`, then `help` at that column (counted from 0), in the next line
 * if `typed` is too long. initial: the default, shown in brackets; NULL or "": none. */
void gs_help_row(FILE *to, const char *typed, unsigned column, const char *help,
                 const char *initial);

/* Candidates for the word that is being typed in a shell. A tool that is called as
 * `TOOL __complete WORD...` (the last word is unfinished) prints a line for each candidate: the word,
 * a tab, its meaning. A line "\tfiles" or "\tfolders" asks the shell for names of files or folders as
 * well. The scripts for bash, zsh and fish (lockd/completion) contain no options themselves, so the
 * tools' own tables are the only list of them. */

#define GS_COMPLETE_OPERANDS 16 /* that are remembered */

/* The place of the unfinished word on the command line. */
struct gs_complete {
    const char *word;                           /* the unfinished word */
    const char *operands[GS_COMPLETE_OPERANDS]; /* words before it that are no options */
    size_t operand_count;                       /* may be more than GS_COMPLETE_OPERANDS */
    int first_operand;                          /* its place in argv; 0: there is none */
    const struct gs_option *value_of;           /* the word is this option's argument */
    bool only_operands;                         /* "--" stands before it */
};

bool gs_complete_asked(int argc, char **argv);
/* table: may be NULL; a name with = at its end has its argument in the same word. Reads argv
 * from `from` to the unfinished word, which is the last. stop: at the first
 * operand. */
void gs_complete_read(struct gs_complete *place, const struct gs_option *table, bool stop,
                      int from, int argc, char **argv);
/* Offers a word if it begins as the unfinished word does. help may be NULL. */
void gs_complete_offer(const struct gs_complete *place, const char *word, const char *help);
/* Offers values for an argument by its name in the help: FILE, PATH, OUT: files; DIR, FOLDER:
 * folders; words in small letters, separated by |: these words. */
void gs_complete_argument(const struct gs_complete *place, const char *argument);
/* Offers the argument of the option before the word or, if the word begins with a dash, the
 * options. false: neither; the word is an operand. */
bool gs_complete_options(const struct gs_complete *place, const struct gs_option *table);
/* All of it for a tool without commands, whose arguments are such (FILE; NULL: it has none).
 * stop: as gs_complete_read(). The exit code. */
int gs_complete_line(const struct gs_option *table, bool stop, const char *argument, int argc,
                     char **argv);
