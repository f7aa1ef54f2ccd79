/* Returns the verdict that sends the packet by this port. */
static inline uint32_t fl_forward(uint16_t port)
{
    return FL_FORWARD | port;
}

/* Returns the verdict that holds the packet until fl_resume(turn, key). Without room the packet is
 * dropped and counted as `drop_hold`. A key above FL_HOLD_MOST gives an invalid verdict. */
static inline uint32_t fl_hold(uint32_t key)
{
    return key > FL_HOLD_MOST ? UINT32_MAX : FL_HOLD | key;
}

/* Returns the `length` bytes at `offset` of the packet, or NULL if the packet ends before. */
static inline void *fl_at(const struct fl_packet *packet, size_t offset, size_t length)
{
    if (offset > packet->length || length > packet->length - offset)
        return NULL;
    return packet->data + offset;
}

/* Prepends `count` bytes with undefined contents and returns the new start. Returns NULL without a
 * change if there is less headroom. */
static inline uint8_t *fl_prepend(struct fl_packet *packet, size_t count)
{
    if (count > packet->headroom)
        return NULL;
    packet->headroom = (uint16_t)(packet->headroom - count);
    packet->length += (uint32_t)count;
    packet->data -= count;
    packet->token |= FL_MOVED;
    return packet->data;
}

/* Appends `count` bytes with undefined contents and returns the first of them. Returns NULL without
 * a change if there is less tailroom. */
static inline uint8_t *fl_append(struct fl_packet *packet, size_t count)
{
    uint8_t *end = packet->data + packet->length;
    if (count > packet->tailroom)
        return NULL;
    packet->tailroom = (uint16_t)(packet->tailroom - count);
    packet->length += (uint32_t)count;
    packet->token |= FL_MOVED;
    return end;
}

/* Removes `count` bytes from the start. Returns false without a change if there are fewer. */
static inline bool fl_trim_front(struct fl_packet *packet, size_t count)
{
    if (count > packet->length || count > (size_t)(UINT16_MAX - packet->headroom))
        return false;
    packet->headroom = (uint16_t)(packet->headroom + count);
    packet->length -= (uint32_t)count;
    packet->data += count;
    packet->token |= FL_MOVED;
    return true;
}

/* Shortens the packet to `length` bytes. Returns false without a change if it is shorter. */
static inline bool fl_truncate(struct fl_packet *packet, size_t length)
{
    size_t room;
    if (length > packet->length)
        return false;
    room = packet->tailroom + (packet->length - length);
    packet->tailroom = room > UINT16_MAX ? UINT16_MAX : (uint16_t)room;
    packet->length = (uint32_t)length;
    packet->token |= FL_MOVED;
    return true;
}

/* Runs a network application: reads the command line and the configuration, opens the ports,
 * creates a state for each lane, and moves packets until SIGINT, SIGTERM, fl_stop or fl_end. Call
 * it once, from `main`, and return its result, an exit status. `app` is copied at the start.
 *
 * 0  ended on request
 * 2  the command line is wrong
 * 3  the configuration is wrong
 * 4  a port, a lane or a service cannot be opened here, or the application refuses
 * 5  the run failed */
static inline int fl_main(int argc, char **argv, const struct fl_app *app)
{
    return fl_main_abi(argc, argv, app, sizeof *app, FL_ABI);
}
