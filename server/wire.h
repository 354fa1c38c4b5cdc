/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The NBD protocol's numbers, and the only way in which this program reads and
 * writes them.  Every integer on the wire is big-endian and none is aligned
 * (STR-05), so structures are never overlaid: take bytes with get_be*, put
 * them with put_be*.  Names are those of the protocol text.
 */
#ifndef NBDSPEC_WIRE_H
#define NBDSPEC_WIRE_H

#include <stdint.h>

/* Greeting and negotiation. */
#define NBD_MAGIC UINT64_C (0x4e42444d41474943)         /* "NBDMAGIC" */
#define NBD_OPTION_MAGIC UINT64_C (0x49484156454f5054)  /* "IHAVEOPT" */
#define NBD_OLDSTYLE_MAGIC UINT64_C (0x0000420281861253)
#define NBD_OPTION_REPLY_MAGIC UINT64_C (0x0003e889045565a9)

#define NBD_FLAG_FIXED_NEWSTYLE 1U
#define NBD_FLAG_NO_ZEROES 2U
#define NBD_FLAG_C_FIXED_NEWSTYLE 1U
#define NBD_FLAG_C_NO_ZEROES 2U

enum nbd_option {
    NBD_OPT_EXPORT_NAME = 1,
    NBD_OPT_ABORT = 2,
    NBD_OPT_LIST = 3,
    NBD_OPT_STARTTLS = 5,
    NBD_OPT_INFO = 6,
    NBD_OPT_GO = 7,
    NBD_OPT_STRUCTURED_REPLY = 8,
    NBD_OPT_LIST_META_CONTEXT = 9,
    NBD_OPT_SET_META_CONTEXT = 10,
    NBD_OPT_EXTENDED_HEADERS = 11,
};

#define NBD_REP_ACK 1U
#define NBD_REP_SERVER 2U
#define NBD_REP_INFO 3U
#define NBD_REP_META_CONTEXT 4U
#define NBD_REP_ERR(n) (UINT32_C (0x80000000) | (n))
#define NBD_REP_ERR_UNSUP NBD_REP_ERR (1)
#define NBD_REP_ERR_POLICY NBD_REP_ERR (2)
#define NBD_REP_ERR_INVALID NBD_REP_ERR (3)
#define NBD_REP_ERR_PLATFORM NBD_REP_ERR (4)
#define NBD_REP_ERR_TLS_REQD NBD_REP_ERR (5)
#define NBD_REP_ERR_UNKNOWN NBD_REP_ERR (6)
#define NBD_REP_ERR_SHUTDOWN NBD_REP_ERR (7)
#define NBD_REP_ERR_BLOCK_SIZE_REQD NBD_REP_ERR (8)
#define NBD_REP_ERR_TOO_BIG NBD_REP_ERR (9)
#define NBD_REP_ERR_EXT_HEADER_REQD NBD_REP_ERR (10)

enum nbd_info {
    NBD_INFO_EXPORT = 0,
    NBD_INFO_NAME = 1,
    NBD_INFO_DESCRIPTION = 2,
    NBD_INFO_BLOCK_SIZE = 3,
};

/* A string on the wire has at most this many bytes (STR-03). */
#define NBD_MAX_STRING 4096U

/* Transmission flags (16 bits). */
#define NBD_FLAG_HAS_FLAGS 0x0001U
#define NBD_FLAG_READ_ONLY 0x0002U
#define NBD_FLAG_SEND_FLUSH 0x0004U
#define NBD_FLAG_SEND_FUA 0x0008U
#define NBD_FLAG_ROTATIONAL 0x0010U
#define NBD_FLAG_SEND_TRIM 0x0020U
#define NBD_FLAG_SEND_WRITE_ZEROES 0x0040U
#define NBD_FLAG_SEND_DF 0x0080U
#define NBD_FLAG_CAN_MULTI_CONN 0x0100U
#define NBD_FLAG_SEND_CACHE 0x0400U
#define NBD_FLAG_SEND_FAST_ZERO 0x0800U
#define NBD_FLAG_BLOCK_STATUS_PAYLOAD 0x1000U

/* Requests. */
#define NBD_REQUEST_MAGIC UINT32_C (0x25609513)
#define NBD_EXTENDED_REQUEST_MAGIC UINT32_C (0x21e41c71)
#define NBD_REQUEST_SIZE 28U
#define NBD_EXTENDED_REQUEST_SIZE 32U

enum nbd_cmd {
    NBD_CMD_READ = 0,
    NBD_CMD_WRITE = 1,
    NBD_CMD_DISC = 2,
    NBD_CMD_FLUSH = 3,
    NBD_CMD_TRIM = 4,
    NBD_CMD_CACHE = 5,
    NBD_CMD_WRITE_ZEROES = 6,
    NBD_CMD_BLOCK_STATUS = 7,
};

#define NBD_CMD_FLAG_FUA 0x0001U
#define NBD_CMD_FLAG_NO_HOLE 0x0002U
#define NBD_CMD_FLAG_DF 0x0004U
#define NBD_CMD_FLAG_REQ_ONE 0x0008U
#define NBD_CMD_FLAG_FAST_ZERO 0x0010U
#define NBD_CMD_FLAG_PAYLOAD_LEN 0x0020U

/* Replies. */
#define NBD_SIMPLE_REPLY_MAGIC UINT32_C (0x67446698)
#define NBD_STRUCTURED_REPLY_MAGIC UINT32_C (0x668e33ef)
#define NBD_EXTENDED_REPLY_MAGIC UINT32_C (0x6e8a278c)
#define NBD_SIMPLE_REPLY_SIZE 16U
#define NBD_STRUCTURED_REPLY_SIZE 20U
#define NBD_EXTENDED_REPLY_SIZE 32U

#define NBD_REPLY_FLAG_DONE 0x0001U
#define NBD_REPLY_TYPE_NONE 0U
#define NBD_REPLY_TYPE_OFFSET_DATA 1U
#define NBD_REPLY_TYPE_OFFSET_HOLE 2U
#define NBD_REPLY_TYPE_BLOCK_STATUS 5U
#define NBD_REPLY_TYPE_BLOCK_STATUS_EXT 6U
#define NBD_REPLY_TYPE_ERROR 0x8001U
#define NBD_REPLY_TYPE_ERROR_OFFSET 0x8002U

/* The eight error numbers that may be sent (ERR-12). */
enum nbd_error {
    NBD_SUCCESS = 0,
    NBD_EPERM = 1,
    NBD_EIO = 5,
    NBD_ENOMEM = 12,
    NBD_EINVAL = 22,
    NBD_ENOSPC = 28,
    NBD_EOVERFLOW = 75,
    NBD_ENOTSUP = 95,
    NBD_ESHUTDOWN = 108,
};

/* base:allocation status bits. */
#define NBD_STATE_HOLE 1U
#define NBD_STATE_ZERO 2U

/* This server's limits, in bytes. */
#define MAX_REQUEST_SIZE (UINT32_C (64) << 20) /* READ, WRITE: else EINVAL */
#define MAX_PAYLOAD_SKIPPED (UINT32_C (128) << 20) /* above: connection ends */

static inline uint16_t
get_be16 (const uint8_t *p)
{
    return (uint16_t) (p[0] << 8 | p[1]);
}

static inline uint32_t
get_be32 (const uint8_t *p)
{
    return (uint32_t) get_be16 (p) << 16 | get_be16 (p + 2);
}

static inline uint64_t
get_be64 (const uint8_t *p)
{
    return (uint64_t) get_be32 (p) << 32 | get_be32 (p + 4);
}

/* The put functions return the place behind what they wrote. */
static inline uint8_t *
put_be16 (uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t) (v >> 8);
    p[1] = (uint8_t) v;
    return p + 2;
}

static inline uint8_t *
put_be32 (uint8_t *p, uint32_t v)
{
    return put_be16 (put_be16 (p, (uint16_t) (v >> 16)), (uint16_t) v);
}

static inline uint8_t *
put_be64 (uint8_t *p, uint64_t v)
{
    return put_be32 (put_be32 (p, (uint32_t) (v >> 32)), (uint32_t) v);
}

#endif
