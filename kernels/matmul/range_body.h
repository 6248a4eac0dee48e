/* The loops of range.c for one type: ITEM is what the factors consist of, PARTS of them an element
 * (2: complex), SUM what is added up, LOAD(item) makes a SUM of one. No include guard: it is
 * included once for each type. */

/* Copies `depth` rows of `columns` of b, from (l, j) on, dense. */
static void NAME(copy)(const struct blasd_matmul_steps *b, const ITEM *matrix, int64_t l, int64_t j,
                       int64_t depth, int64_t columns, ITEM to[DEPTH][COLUMNS * PARTS]) {
    for (int64_t i = 0; i < depth; i++)
        for (int64_t c = 0; c < columns; c++)
            memcpy(&to[i][c * PARTS], matrix + ((l + i) * b->row + (j + c) * b->column) * PARTS,
                   PARTS * sizeof(ITEM));
}

/* sums += a row of a, times the copied rows of b. */
BLASD_CLONES
static void NAME(add)(const struct blasd_matmul_steps *a, const ITEM *row, int64_t depth,
                      ITEM b[DEPTH][COLUMNS * PARTS], SUM *restrict sums) {
    for (int64_t l = 0; l < depth; l++, row += a->column * PARTS) {
        const ITEM *restrict from = b[l];
#if PARTS == 1
        const SUM x = LOAD(row[0]);
        for (int c = 0; c < COLUMNS; c++) sums[c] += x * LOAD(from[c]);
#else
        const SUM x = LOAD(row[0]), y = LOAD(row[1]);
        for (int c = 0; c < COLUMNS; c++) {
            sums[2 * c] += x * LOAD(from[2 * c]) - y * LOAD(from[2 * c + 1]);
            sums[2 * c + 1] += x * LOAD(from[2 * c + 1]) + y * LOAD(from[2 * c]);
        }
#endif
    }
}

static void NAME(finish)(const struct wide *wide, int64_t at, const SUM *sum) {
#ifdef EXACT
    uint64_t value = (uint64_t)(int64_t)wide->mm->alpha * sum[0];
    const struct blasd_tensor *c = &wide->task->inputs[BLASD_MATMUL_C];
    if (wide->mm->add_c)
        value +=
            (uint64_t)(int64_t)wide->mm->beta *
            ((const uint64_t *)c->data)[blasd_matmul_place_of_c(c, &wide->task->outputs[0], at)];
    ((uint64_t *)wide->task->outputs[0].data)[at] = value;
#else
    for (int p = 0; p < PARTS; p++) finish_part(wide, at, p, PARTS, (long double)sum[p]);
#endif
}

static bool NAME(patch)(void *arg, int64_t piece, int slot) {
    const struct wide *wide = arg;
    const struct blasd_matmul *mm = wide->mm;
    int64_t item = piece / (wide->down * wide->across), patch = piece % (wide->down * wide->across);
    int64_t i = patch / wide->across * ROWS, j = patch % wide->across * COLUMNS, done = 0;
    int64_t rows = mm->m - i < ROWS ? mm->m - i : ROWS;
    int64_t columns = mm->n - j < COLUMNS ? mm->n - j : COLUMNS;
    SUM sums[ROWS][COLUMNS * PARTS];
    ITEM b[DEPTH][COLUMNS * PARTS];
    const ITEM *from[2];
    struct blasd_walk walk;
    (void)slot;
    blasd_walk_init(&walk, mm->batch_rank, mm->batch);
    blasd_walk_operand(&walk, 0, mm->a.batch_rank, mm->a.batch);
    blasd_walk_operand(&walk, 1, mm->b.batch_rank, mm->b.batch);
    blasd_walk_seek(&walk, item);
    from[0] = (const ITEM *)wide->task->inputs[BLASD_MATMUL_A].data +
              walk.offset[0] * wide->a.matrix * PARTS;
    from[1] = (const ITEM *)wide->task->inputs[BLASD_MATMUL_B].data +
              walk.offset[1] * wide->b.matrix * PARTS;
    for (int64_t r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS * PARTS; c++) sums[r][c] = 0;
    memset(b, 0, sizeof b);
    for (int64_t l = 0; l < mm->k; l += DEPTH) {
        int64_t depth = mm->k - l < DEPTH ? mm->k - l : DEPTH;
        if (!blasd_wanted_after(&done, rows * COLUMNS * depth)) return false;
        NAME(copy)(&wide->b, from[1], l, j, depth, columns, b);
        for (int64_t r = 0; r < rows; r++) {
            const ITEM *row = from[0] + ((i + r) * wide->a.row + l * wide->a.column) * PARTS;
            NAME(add)(&wide->a, row, depth, b, sums[r]);
        }
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            NAME(finish)(wide, (item * mm->m + i + r) * mm->n + j + c, &sums[r][c * PARTS]);
    return true;
}

#undef PARTS
#undef NAME
