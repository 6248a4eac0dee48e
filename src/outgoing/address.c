/* Which addresses are whose: by the registries of special-purpose addresses (RFC 6890 and what
 * followed it), and what clouds serve their machines at. */
#include "outgoing/hosts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

struct range4 {
    uint32_t first;
    int bits;
    enum outgoing_reach reach;
};

#define A(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* The first that fits counts. */
static const struct range4 ranges4[] = {
    {A(100, 100, 100, 200), 32, OUTGOING_NEVER}, /* a cloud's metadata, within the next but one */
    {A(168, 63, 129, 16), 32, OUTGOING_NEVER},   /* another's */
    {A(100, 64, 0, 0), 10, OUTGOING_PRIVATE},    {A(10, 0, 0, 0), 8, OUTGOING_PRIVATE},
    {A(127, 0, 0, 0), 8, OUTGOING_PRIVATE},      {A(172, 16, 0, 0), 12, OUTGOING_PRIVATE},
    {A(192, 168, 0, 0), 16, OUTGOING_PRIVATE},   {A(0, 0, 0, 0), 8, OUTGOING_NEVER},
    {A(169, 254, 0, 0), 16, OUTGOING_NEVER},     {A(192, 0, 0, 0), 24, OUTGOING_NEVER},
    {A(192, 0, 2, 0), 24, OUTGOING_NEVER},       {A(192, 88, 99, 0), 24, OUTGOING_NEVER},
    {A(198, 18, 0, 0), 15, OUTGOING_NEVER},      {A(198, 51, 100, 0), 24, OUTGOING_NEVER},
    {A(203, 0, 113, 0), 24, OUTGOING_NEVER},     {A(224, 0, 0, 0), 3, OUTGOING_NEVER},
};

static enum outgoing_reach reach4(uint32_t address) {
    for (size_t i = 0; i < sizeof ranges4 / sizeof *ranges4; i++)
        if ((address ^ ranges4[i].first) >> (32 - ranges4[i].bits) == 0) return ranges4[i].reach;
    return OUTGOING_PUBLIC;
}

struct range6 {
    const char *first;
    int bits;
    enum outgoing_reach reach;
    int inner; /* > 0: where an address of version 4 stands in it, which counts */
};

static const struct range6 ranges6[] = {
    {"fd00:ec2::254", 128, OUTGOING_NEVER, 0}, /* a cloud's metadata */
    {"fd00:ec2::23", 128, OUTGOING_NEVER, 0},  {"fd20:ce::254", 128, OUTGOING_NEVER, 0},
    {"::1", 128, OUTGOING_PRIVATE, 0},         {"fc00::", 7, OUTGOING_PRIVATE, 0},
    {"::ffff:0:0", 96, OUTGOING_PUBLIC, 12}, /* the same as that address */
    {"64:ff9b::", 96, OUTGOING_PUBLIC, 12},  /* translated to it, where there is no version 4 */
    {"2002::", 16, OUTGOING_NEVER, 0},       /* tunnels, by relays of anybody's */
    {"2001::", 23, OUTGOING_NEVER, 0},         {"2001:db8::", 32, OUTGOING_NEVER, 0},
    {"3fff::", 20, OUTGOING_NEVER, 0},         {"2000::", 3, OUTGOING_PUBLIC, 0},
};

static bool begins_with(const uint8_t *address, const uint8_t *first, int bits) {
    int whole = bits / 8, rest = bits % 8;
    if (memcmp(address, first, (size_t)whole) != 0) return false;
    return rest == 0 || (address[whole] ^ first[whole]) >> (8 - rest) == 0;
}

static enum outgoing_reach reach6(const uint8_t address[16]) {
    for (size_t i = 0; i < sizeof ranges6 / sizeof *ranges6; i++) {
        uint8_t first[16];
        uint32_t inner;
        if (inet_pton(AF_INET6, ranges6[i].first, first) != 1 ||
            !begins_with(address, first, ranges6[i].bits))
            continue;
        if (ranges6[i].inner == 0) return ranges6[i].reach;
        memcpy(&inner, address + ranges6[i].inner, sizeof inner);
        return reach4(ntohl(inner));
    }
    return OUTGOING_NEVER; /* nothing else is given to anybody */
}

enum outgoing_reach outgoing_reach_of(const struct sockaddr *address) {
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    switch (address->sa_family) {
    case AF_INET: memcpy(&in, address, sizeof in); return reach4(ntohl(in.sin_addr.s_addr));
    case AF_INET6: memcpy(&in6, address, sizeof in6); return reach6(in6.sin6_addr.s6_addr);
    default: return OUTGOING_NEVER;
    }
}

bool outgoing_is_address(const struct sockaddr *address, const char *literal) {
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    uint8_t bytes[16];
    if (address->sa_family == AF_INET) {
        memcpy(&in, address, sizeof in);
        return inet_pton(AF_INET, literal, bytes) == 1 && memcmp(bytes, &in.sin_addr, 4) == 0;
    }
    if (address->sa_family != AF_INET6) return false;
    memcpy(&in6, address, sizeof in6);
    return inet_pton(AF_INET6, literal, bytes) == 1 && in6.sin6_scope_id == 0 &&
           memcmp(bytes, &in6.sin6_addr, 16) == 0;
}
