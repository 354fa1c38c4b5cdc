/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Metadata contexts.
 */
#ifndef NBDSPEC_META_H
#define NBDSPEC_META_H

/* base:allocation's id, in the reply to SET and in BLOCK_STATUS chunks. */
#define META_ALLOCATION_ID 1U

struct meta;

/* No context is selected any more. */
void meta_forget (struct meta *meta);

#endif
