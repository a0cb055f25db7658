/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.h: candidates for the word that is being typed in a shell. A tool that is called as
 * `TOOL __complete WORD...` (the last word is unfinished) prints a line for each
 * candidate: the word, a tab, its meaning. A line "\tfiles" or "\tfolders" asks the shell for
 * names of files or folders as well. The scripts for bash, zsh and fish (lockd/completion)
 * contain no options themselves, so the tools' own tables are the only list of them.
 */
#pragma once

#include "common/options.h"

#define GS_COMPLETE_COMMAND  "__complete"
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
