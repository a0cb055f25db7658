/* SPDX-License-Identifier: Apache-2.0
 *
 * op.c: operations and what running one takes: references, and the faults of device addresses.
 *
 * A touch of an address of the card that has no memory ends the operation with an error, as on a
 * card; a page of managed memory that is elsewhere comes. State: the handler that was there before.
 * Threads: references under sim.lock; operations run without it.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include "tests/simcuda/managed.h"

struct sim_op *sim_op_new(size_t size, const char *name, CUgraphNodeType type,
                          CUresult (*run)(const struct sim_op *, struct sim_context *))
{
    struct sim_op *op = calloc(1, size);

    if (op) {
        op->refs = 1;
        op->name = name;
        op->type = type;
        op->run = run;
    }
    return op;
}

void sim_op_put(struct sim_op *op)
{
    if (!op || --op->refs > 0)
        return;
    if (op->release)
        op->release(op);
    free(op);
}

static __thread sigjmp_buf *volatile fault_return;
static struct sigaction fault_before;

static void on_fault(int number, siginfo_t *info, void *machine)
{
    const uintptr_t address = (uintptr_t)info->si_addr;

    if (info->si_code > 0 && sim_in_arena(address) &&
        (sim_managed_touch(address, fault_return != NULL) || sim_host_chunk_touch(address)))
        return; /* the page has come, or is open: again */
    if (fault_return && info->si_code > 0 && (address < 65536 || sim_in_arena(address)))
        siglongjmp(*fault_return, 1);
    const struct sigaction *before = &fault_before;
    if (before->sa_flags & SA_SIGINFO) {
        before->sa_sigaction(number, info, machine);
    } else if (before->sa_handler != SIG_IGN && before->sa_handler != SIG_DFL) {
        before->sa_handler(number);
    } else {
        const struct sigaction die = {.sa_handler = SIG_DFL};
        sigaction(number, &die, NULL); /* the instruction faults again */
    }
}

/* The application may set a handler of its own after us: look each time. */
void sim_faults_catch(void)
{
    static pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction now;

    pthread_mutex_lock(&handler_lock);
    if (sigaction(SIGSEGV, NULL, &now) == 0 &&
        !((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)) {
        struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&ours.sa_mask);
        fault_before = now;
        sigaction(SIGSEGV, &ours, NULL);
        sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&handler_lock);
}

CUresult sim_guarded_run(const struct sim_op *op, struct sim_context *context)
{
    sigjmp_buf here;

    sim_faults_catch();
    sim_host_chunk_begin();
    if (sigsetjmp(here, 1)) {
        fault_return = NULL;
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    fault_return = &here;
    const CUresult result = op->run(op, context);
    fault_return = NULL;
    sim_host_chunk_end();
    return result;
}
