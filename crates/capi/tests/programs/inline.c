/* The inline functions at their edges, on a packet of its own. */
#include <fastlane.h>
#include <stdio.h>
#include <string.h>

static uint8_t frame[100000];
static int failures;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s\n", __LINE__, #condition); \
            failures++; \
        } \
    } while (0)

static struct fl_packet packet(uint16_t headroom, uint32_t length, uint16_t tailroom)
{
    struct fl_packet made;
    memset(&made, 0, sizeof made);
    made.data = frame + headroom;
    made.length = length, made.headroom = headroom, made.tailroom = tailroom;
    return made;
}

static int is(const struct fl_packet *it, size_t start, uint32_t length, uint16_t tailroom)
{
    return it->data == frame + start && it->headroom == start && it->length == length
        && it->tailroom == tailroom;
}

int main(void)
{
    struct fl_packet it = packet(16, 60, 20);

    CHECK(fl_forward(0) == 0x03000000 && fl_forward(65535) == 0x0300ffff);
    CHECK(FL_KERNEL == 0 && FL_DROP == 0x01000000 && FL_REFLECT == 0x02000000);

    CHECK(fl_hold(0) == 0x04000000 && fl_hold(FL_HOLD_MOST) == 0x04ffffff);
    CHECK(fl_hold(FL_HOLD_MOST + 1) == UINT32_MAX && fl_hold(UINT32_MAX) == UINT32_MAX);

    CHECK(fl_at(&it, 0, 60) == it.data && fl_at(&it, 60, 0) == it.data + 60);
    CHECK(!fl_at(&it, 0, 61) && !fl_at(&it, 60, 1) && !fl_at(&it, 61, 0));
    CHECK(!fl_at(&it, SIZE_MAX, 1) && !fl_at(&it, 1, SIZE_MAX) && !fl_at(&it, SIZE_MAX, SIZE_MAX));

    CHECK(!fl_prepend(&it, 17) && !fl_prepend(&it, 65536 + 1) && !fl_prepend(&it, SIZE_MAX));
    CHECK(is(&it, 16, 60, 20));
    CHECK(fl_prepend(&it, 16) == frame && is(&it, 0, 76, 20));
    CHECK(!fl_append(&it, 21) && !fl_append(&it, 65536 + 1) && !fl_append(&it, SIZE_MAX));
    CHECK(fl_append(&it, 20) == frame + 76 && is(&it, 0, 96, 0));
    CHECK(!fl_trim_front(&it, 97) && !fl_trim_front(&it, SIZE_MAX) && is(&it, 0, 96, 0));
    CHECK(fl_trim_front(&it, 6) && is(&it, 6, 90, 0));
    CHECK(!fl_truncate(&it, 91) && !fl_truncate(&it, SIZE_MAX) && is(&it, 6, 90, 0));
    CHECK(fl_truncate(&it, 90) && fl_truncate(&it, 14) && is(&it, 6, 14, 76));
    CHECK(fl_trim_front(&it, 14) && fl_truncate(&it, 0) && is(&it, 20, 0, 76));

    /* A step that is done leaves its bit, and the rest of the token. */
    for (int step = 0; step < 4; step++) {
        it = packet(16, 60, 20);
        it.token = 7;
        CHECK(!fl_prepend(&it, 17) && !fl_append(&it, 21) && it.token == 7);
        CHECK(!fl_trim_front(&it, 61) && !fl_truncate(&it, 61) && it.token == 7);
        CHECK(step == 0   ? fl_prepend(&it, 1) != NULL
              : step == 1 ? fl_append(&it, 1) != NULL
              : step == 2 ? fl_trim_front(&it, 1)
                          : fl_truncate(&it, 59));
        CHECK(it.token == (FL_MOVED | 7));
    }

    it = packet(10, 90000, 5); /* longer than the rooms can say */
    CHECK(!fl_trim_front(&it, 65526) && fl_trim_front(&it, 65525) && it.headroom == 65535);
    CHECK(fl_truncate(&it, 0) && it.tailroom == 24480);
    it = packet(0, 90000, 5);
    CHECK(fl_truncate(&it, 0) && it.tailroom == 65535);
    return failures;
}
