/* Lookups in the tables of DPDK in bulks of 32: rte_hash with lock-free readers, rte_fib, rte_lpm,
 * rte_fib6 and rte_acl.
 *
 *   dpdk_lookup EAL-ARGUMENTS -- KIND PAGES FILE
 *
 * KIND is hash, fib, fib-vector, lpm, fib6, fib6-vector, acl-avx2, acl-x16 or acl-x32; PAGES is small or huge (transparent). FILE
 * holds, in words of 64 bits, the entries, the size of each, the number of sets of queries and the
 * queries of each, then the entries and the queries themselves. The program runs in the main
 * thread. It prints "ready", the memory of the table, the part of it in huge pages (KiB), the build
 * time (ms), and the result of a pass over each set. Then it reads lines "SET MICROSECONDS", runs
 * lookups for that time, and prints the nanoseconds of CPU time and the number of lookups. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_lpm.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_prefetch.h>

enum { BULK = 32, CHUNK = 8192, SETS = 4, GROUPS = 1 << 15, GROUPS6 = 1 << 19, PAGE = 2 << 20,
       HEAP = 1 << 30 };

struct entry { uint8_t key[16]; uint64_t value[8]; };
struct route { uint32_t address, length, hop; };
struct rule {
    uint32_t addresses[2], lengths[2];
    uint16_t ports[2][2];
    uint8_t protocols[2], padding[2];
};
struct route6 { uint8_t address[16]; uint32_t length, hop; };

/* Results of a bulk as the table has them: words, or next hops of rte_lpm with a flag. */
union results { uint64_t words[BULK]; uint32_t hops[BULK]; };

/* Looks up BULK queries and writes a result for each of them. */
typedef void (*find)(const uint8_t *queries, union results *results);

static struct rte_hash *hash;
static struct rte_fib *fib;
static struct rte_fib6 *fib6;
static struct rte_lpm *lpm;
static struct rte_acl_ctx *acl;
static int node; /* socket id that DPDK gives to the heap of make_heap */

static void fail(const char *what)
{
    fprintf(stderr, "dpdk_lookup: %s\n", what);
    exit(1);
}

static uint64_t now(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void find_hash(const uint8_t *queries, union results *results)
{
    uint64_t *words = results->words;
    const void *keys[BULK];
    void *data[BULK];
    uint64_t hits;

    for (int i = 0; i < BULK; i++)
        keys[i] = queries + 16 * i;
    rte_hash_lookup_bulk_data(hash, keys, BULK, &hits, data);
    for (uint64_t left = hits; left; left &= left - 1)
        rte_prefetch0(data[__builtin_ctzll(left)]);
    memset(words, 0, sizeof results->words);
    for (; hits; hits &= hits - 1) {
        int i = __builtin_ctzll(hits);
        const uint64_t *value = data[i];
        uint64_t sum = 0;

        for (int word = 0; word < 8; word++)
            sum += value[word];
        words[i] = sum;
    }
}

static void find_fib(const uint8_t *queries, union results *results)
{
    rte_fib_lookup_bulk(fib, (uint32_t *)(uintptr_t)queries, results->words, BULK);
}

static void find_fib6(const uint8_t *queries, union results *results)
{
    rte_fib6_lookup_bulk(fib6, (uint8_t(*)[16])(uintptr_t)queries, results->words, BULK);
}

static void find_lpm(const uint8_t *queries, union results *results)
{
    rte_lpm_lookup_bulk(lpm, (const uint32_t *)queries, results->hops, BULK);
}

static void find_acl(const uint8_t *queries, union results *results)
{
    const uint8_t *data[BULK];

    for (int i = 0; i < BULK; i++)
        data[i] = queries + 16 * i;
    rte_acl_classify(acl, data, results->hops, BULK, 1);
}

/* Returns a result as a number, 0 if there is no entry. */
static inline uint64_t number(const union results *results, int i)
{
    uint32_t hop = results->hops[i];

    if (acl)
        return hop;
    if (!lpm)
        return results->words[i];
    return hop & RTE_LPM_LOOKUP_SUCCESS ? hop & 0xffffff : 0;
}

static find build_hash(const struct entry *entries, uint64_t count)
{
    struct rte_hash_parameters parameters = {
        .name = "lookup",
        .entries = 2 * count, /* the room of Fastlane's tables: buckets half full */
        .key_len = 16,
        .hash_func = rte_hash_crc,
        .socket_id = node,
        .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF,
    };
    uint64_t(*values)[8] = rte_malloc_socket("values", count * sizeof *values, 64, node);

    hash = rte_hash_create(&parameters);
    if (!hash || !values)
        fail("no memory for the hash");
    for (uint64_t i = 0; i < count; i++) {
        memcpy(values[i], entries[i].value, sizeof *values);
        if (rte_hash_add_key_data(hash, entries[i].key, values[i]))
            fail("the hash does not take all keys");
    }
    return find_hash;
}

static find build_fib(const struct route *routes, uint64_t count, int vector)
{
    struct rte_fib_conf conf = {.type = RTE_FIB_DIR24_8, .max_routes = 2 * count};

    conf.dir24_8.nh_sz = RTE_FIB_DIR24_8_4B;
    conf.dir24_8.num_tbl8 = GROUPS;
    fib = rte_fib_create("lookup", node, &conf);
    if (!fib)
        fail("no memory for the FIB");
    for (uint64_t i = 0; i < count; i++)
        if (rte_fib_add(fib, routes[i].address, routes[i].length, routes[i].hop))
            fail("the FIB does not take all routes");
    if (rte_fib_select_lookup(fib, vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512
                                          : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO))
        fail("the FIB does not look up this way here");
    return find_fib;
}

static find build_fib6(const struct route6 *routes, uint64_t count, int vector)
{
    struct rte_fib6_conf conf = {.type = RTE_FIB6_TRIE, .max_routes = 2 * count};

    conf.trie.nh_sz = RTE_FIB6_TRIE_4B;
    conf.trie.num_tbl8 = GROUPS6;
    fib6 = rte_fib6_create("lookup", node, &conf);
    if (!fib6)
        fail("no memory for the FIB");
    for (uint64_t i = 0; i < count; i++)
        if (rte_fib6_add(fib6, routes[i].address, routes[i].length, routes[i].hop))
            fail("the FIB does not take all routes");
    if (rte_fib6_select_lookup(fib6, vector ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512
                                            : RTE_FIB6_LOOKUP_TRIE_SCALAR))
        fail("the FIB does not look up this way here");
    return find_fib6;
}

static find build_lpm(const struct route *routes, uint64_t count)
{
    struct rte_lpm_config conf = {.max_rules = count, .number_tbl8s = GROUPS};

    lpm = rte_lpm_create("lookup", node, &conf);
    if (!lpm)
        fail("no memory for the LPM");
    for (uint64_t i = 0; i < count; i++)
        if (rte_lpm_add(lpm, routes[i].address, routes[i].length, routes[i].hop))
            fail("the LPM does not take all routes");
    return find_lpm;
}

/* Fields of a query; the first one must have one byte. */
static const struct rte_acl_field_def fields[] = {
    {RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, 12}, {RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, 0},
    {RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, 4},     {RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, 8},
    {RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, 10},
};
RTE_ACL_RULE_DEF(acl_rule, RTE_DIM(fields));

static find build_acl(const struct rule *rules, uint64_t count, const char *kind)
{
    struct rte_acl_param parameters = {
        .name = "lookup",
        .socket_id = node,
        .rule_size = RTE_ACL_RULE_SZ(RTE_DIM(fields)),
        .max_rule_num = count,
    };
    struct rte_acl_config config = {.num_categories = 1, .num_fields = RTE_DIM(fields)};

    memcpy(config.defs, fields, sizeof fields);
    acl = rte_acl_create(&parameters);
    if (!acl)
        fail("no memory for the ACL");
    for (uint64_t i = 0; i < count; i++) {
        struct acl_rule rule = {.data = {1, count - i, i + 1}};

        rule.field[0].value.u8 = rules[i].protocols[0];
        rule.field[0].mask_range.u8 = rules[i].protocols[0] == rules[i].protocols[1] ? 0xff : 0;
        for (int side = 0; side < 2; side++) {
            rule.field[1 + side].value.u32 = rules[i].addresses[side];
            rule.field[1 + side].mask_range.u32 = rules[i].lengths[side];
            rule.field[3 + side].value.u16 = rules[i].ports[side][0];
            rule.field[3 + side].mask_range.u16 = rules[i].ports[side][1];
        }
        if (rte_acl_add_rules(acl, (struct rte_acl_rule *)&rule, 1))
            fail("the ACL does not take all rules");
    }
    if (rte_acl_build(acl, &config))
        fail("the ACL cannot be built");
    if (rte_acl_set_ctx_classify(acl, strstr(kind, "x32")   ? RTE_ACL_CLASSIFY_AVX512X32
                                      : strstr(kind, "x16") ? RTE_ACL_CLASSIFY_AVX512X16
                                                            : RTE_ACL_CLASSIFY_AVX2))
        fail("the ACL does not classify this way here");
    return find_acl;
}

static find build(const char *kind, const void *entries, uint64_t count)
{
    int vector = !!strstr(kind, "-vector");

    if (!strcmp(kind, "hash"))
        return build_hash(entries, count);
    if (!strcmp(kind, "lpm"))
        return build_lpm(entries, count);
    if (!strncmp(kind, "acl", 3))
        return build_acl(entries, count, kind);
    if (!strncmp(kind, "fib6", 4))
        return build_fib6(entries, count, vector);
    return build_fib(entries, count, vector);
}

/* Creates a heap of memory aligned to huge pages. Without hugetlbfs the memory of EAL is not aligned
 * to them, so the kernel never uses any. Huge pages are requested before the memory is touched. */
static int make_heap(uint64_t size, int huge)
{
    char *memory = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        fail("no memory");
    memory = (char *)(((uintptr_t)memory + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    if (huge && madvise(memory, size, MADV_HUGEPAGE))
        fail("no huge pages");
    if (rte_malloc_heap_create("tables") ||
        rte_malloc_heap_memory_add("tables", memory, size, NULL, size / PAGE, PAGE))
        fail("no heap");
    return rte_malloc_heap_get_socket("tables");
}

/* Returns the allocated memory of the heap, in KiB. */
static uint64_t allocated(void)
{
    struct rte_malloc_socket_stats statistics;

    if (rte_malloc_get_socket_stats(node, &statistics))
        fail("no statistics");
    return statistics.heap_allocsz_bytes >> 10;
}

/* Returns the memory of the process in huge pages, in KiB. */
static uint64_t huge_pages(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    uint64_t huge = 0, number;
    char line[256];

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %lu", &number) == 1)
            huge = number;
    return huge;
}

static void *read_file(const char *path, uint64_t *length)
{
    FILE *file = fopen(path, "rb");
    void *content;

    if (!file || fseek(file, 0, SEEK_END))
        fail("no workload");
    *length = ftell(file);
    rewind(file);
    content = rte_malloc_socket("workload", *length, 64, node);
    if (!content || fread(content, 1, *length, file) != *length)
        fail("no memory for the workload");
    fclose(file);
    return content;
}

int main(int argc, char **argv)
{
    int used;
    uint64_t length, counts[SETS], places[SETS] = {0}, set, limit, start, before, huge, sum = 0;
    const uint64_t *header;
    const uint8_t *sets[SETS], *place;
    uint64_t sets_count;
    union results results;
    size_t size;
    find find;

    if (strcmp(argv[argc - 2], "huge"))
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    used = rte_eal_init(argc, argv);
    if (used < 0)
        fail("EAL does not start");
    argc -= used;
    argv += used;
    if (argc != 4)
        fail("after --: KIND PAGES FILE");
    node = make_heap(HEAP, !strcmp(argv[2], "huge"));
    header = read_file(argv[3], &length);
    size = !strncmp(argv[1], "fib6", 4) || strncmp(argv[1], "fib", 3) ? 16 : 4;
    size = strcmp(argv[1], "lpm") ? size : 4;
    sets_count = header[2];
    if (sets_count > SETS)
        fail("too many sets");
    place = (const uint8_t *)(header + 3 + sets_count) + header[0] * header[1];
    for (set = 0; set < sets_count; set++) {
        counts[set] = header[3 + set];
        sets[set] = place;
        place += counts[set] * size;
    }
    before = allocated();
    huge = huge_pages();
    huge = huge == (uint64_t)HEAP >> 10 ? 0 : huge;
    start = now(CLOCK_MONOTONIC);
    find = build(argv[1], header + 3 + sets_count, header[0]);
    start = now(CLOCK_MONOTONIC) - start;

    before = allocated() - before;
    huge = huge_pages() - huge;
    printf("ready %lu %lu %lu", before, huge < before ? huge : before, start / 1000000);
    for (set = 0; set < sets_count; set++) {
        uint64_t folded = 0;

        for (uint64_t i = 0; i < counts[set]; i += BULK) {
            find(sets[set] + i * size, &results);
            for (int j = 0; j < BULK; j++)
                folded = (folded ^ number(&results, j)) * 0x100000001b3ull;
        }
        printf(" %lu", folded);
    }
    puts("");
    fflush(stdout);

    while (scanf("%lu %lu", &set, &limit) == 2 && set < sets_count) {
        uint64_t end = now(CLOCK_MONOTONIC) + limit * 1000, done = 0;

        start = now(CLOCK_THREAD_CPUTIME_ID);
        do {
            const uint8_t *queries = sets[set] + places[set] * size;

            for (int i = 0; i < CHUNK; i += BULK) {
                find(queries + i * size, &results);
                for (int j = 0; j < BULK; j++)
                    sum += number(&results, j);
            }
            done += CHUNK;
            places[set] = (places[set] + CHUNK) % counts[set];
        } while (now(CLOCK_MONOTONIC) < end);
        printf("%lu %lu %lu\n", now(CLOCK_THREAD_CPUTIME_ID) - start, done, sum);
        fflush(stdout);
    }
    return 0;
}
