/* SPDX-License-Identifier: Apache-2.0
 *
 * who.h: the user, container and pod of a program, as names.
 */
#ifndef GS_LOCKD_CTL_WHO_H
#define GS_LOCKD_CTL_WHO_H

#include "lockd/ctl/ctl.h"

/* The name of a user, or the number of one without a name. */
const char *ctl_user_name(uint32_t uid, char *buffer, size_t size);
#define CTL_CONTAINER_SIZE 80
/* The container of a program; an id is shortened to 12 digits, as docker ps shows it. "": none. */
const char *ctl_container_text(const struct gs_wire_client *client, char *buffer);
/* Reads the names of the programs' pods from kubelet's folders: fills in answer->client_pods. */
void ctl_pods_look(struct ctl_answer *answer);
/* The pod of the program at that index. */
const struct ctl_pod *ctl_client_pod(const struct ctl_answer *answer, size_t index);

#endif
