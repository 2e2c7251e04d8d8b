// The derivative of marginals with respect to all potentials, by the same sweeps backwards.
//
// A forward pass keeps the cavity x of each message. With g = (adjoint of the logarithm of
// a message) / message, the adjoint of log(x) is x times (table times g), and that of the table the product
// of x and g. The sum over labels of the adjoint of a logarithm is 0, since messages may have any scale.
// Table gradients are matrix products whose sums stay in registers: of a few positions at once where all
// edges share a table, of all iterations at once where each edge has its own.
#pragma once
#include "roofline_lattice.h"

template <class T, int K, Power P, bool PerEdge> class Gradient : public Lattice<T, K, P, PerEdge> {
    using Base = Lattice<T, K, P, PerEdge>;
    using typename Base::Axis;
    using typename Base::Tape;
    using typename Base::V;
    using Base::axes, Base::N, Base::M, Base::G, Base::W, Base::L;
    using Base::place, Base::edge_place, Base::vectors, Base::cell, Base::tape_x, Base::tape_inverse;

    // Labels per block of a table gradient; the sums of a block fit into registers.
    static constexpr int rows = K == 5 ? 5 : K % 4 == 0 ? 4 : K % 3 == 0 ? 3 : 1;
    static constexpr int columns = K == 5 ? 5 : K % 7 == 0 ? 7 : K % 4 == 0 ? 4 : K % 3 == 0 ? 3 : 1;
    static constexpr int chunk = K == 2 ? 1 : 8;  // positions per product of shared tables

    std::vector<std::array<Tape, 2>> tapes;
    // Adjoints of logarithms: of unary potentials; of the product of messages of an axis, which is the field
    // of the other; of messages from the next position, as the next iteration sees them.
    Array<T> d_unary[2]{Array<T>(0), Array<T>(0)}, d_joint[2]{Array<T>(0), Array<T>(0)};
    Array<T> d_reverse[2]{Array<T>(0), Array<T>(0)}, d_tables[2]{Array<T>(0), Array<T>(0)};
    V sums[2][K * K];           // adjoints of shared tables, one sum per lane of a vector
    Array<T> d_cavity, kept;    // of the messages of one tile from the next position
    V *products;                // g of a chunk

public:
    Gradient(const Problem &problem, int iterations) : Base(problem), d_cavity(0), kept(0) {
        for (int axis = 0; axis < 2; ++axis) {
            Axis &a = axes[axis];
            for (Array<T> *array : {&d_unary[axis], &d_joint[axis], &d_reverse[axis]})
                *array = Array<T>(a.unary.size, 0);
            d_tables[axis] = Array<T>(a.tables.size, 0);
        }
        tapes.resize(iterations);
        for (auto &iteration : tapes)
            for (int axis = 0; axis < 2; ++axis) {
                const size_t size = edge_place(axes[axis], axes[axis].tiles, 0);
                for (auto &array : iteration[axis].x) array = Array<T>(size);
                for (auto &array : iteration[axis].inverse) array = Array<T>(K > 2 && PerEdge ? size : 0);
            }
        const size_t longest = std::max(axes[0].length, axes[1].length);
        d_cavity = Array<T>(longest * N * L, 0), kept = Array<T>(longest * 3 * L, 0);
    }

    void forward() {
        for (auto &tape : tapes)
            for (int axis = 0; axis < 2; ++axis) this->template sweep<true>(axis, &tape[axis]);
    }

    // The adjoint of the logarithm of beliefs, which all messages of the last iteration see.
    void seed(const Problem &problem, const std::vector<double> &mu) {
        for (int axis = 0; axis < 2; ++axis) {
            for (Array<T> *array : {&d_unary[axis], &d_joint[axis], &d_reverse[axis]})
                std::fill_n(array->at(0), array->size, T(0));
            std::fill_n(d_tables[axis].at(0), d_tables[axis].size, T(0));
            std::fill_n(sums[axis], K * K, V{});
        }
        for (int64_t r = 0; r < problem.height; ++r)
            for (int64_t c = 0; c < problem.width; ++c) {
                const int64_t i = (r * problem.width + c) * K;
                double mean = 0;
                for (int x = 0; x < K; ++x) mean += mu[i + x] * problem.d_mu[i + x];
                for (int n = 0; n < N; ++n) {
                    const int64_t x = i + n + (K == 2);
                    const T d = T(mu[x] * (problem.d_mu[x] - mean));
                    *d_joint[0].at(cell(0, r, c) + n * L) = *d_joint[1].at(cell(1, c, r) + n * L) = d;
                    *d_unary[0].at(cell(0, r, c) + n * L) = d;
                }
            }
    }

    void backward() {
        for (int t = int(tapes.size()) - 1; t >= 0; --t)
            for (int axis = 1; axis >= 0; --axis)
                for (int64_t tile = 0; tile < axes[axis].tiles; ++tile) {
                    undo_backward(axis, tile, tapes[t][axis]);
                    // The messages of rows in the last iteration are in marginals too.
                    const bool is_last = axis == 1 && t + 1 == int(tapes.size());
                    is_last ? undo_forward<true>(axis, tile, tapes[t][axis], true)
                            : undo_forward<false>(axis, tile, tapes[t][axis], t > 0 || axis == 1);
                }
        if constexpr (PerEdge && K > 2)
            for (int axis = 0; axis < 2; ++axis) own_tables(axis);
    }

private:
    // From the adjoint d of the logarithm of a message to that of its cavity.
    inline void undo(int axis, int backward, int64_t tile, int64_t edge, const V *d, V *dx, Tape &tape, V *g) {
        Axis &a = axes[axis];
        const V *x = tape_x(a, &tape, backward, tile, edge), *table = Base::table(a, tile, edge);
        Base::prefetch(x + (backward ? 4 : -4) * N * G, N * G);
        if constexpr (K == 2) {
            undo_ratio(axis, backward, tile, edge, d, dx, x, table);
        } else {
            if constexpr (Base::keeps_inverse) {
                const V *inverse = tape_inverse(a, &tape, backward, tile, edge);
#pragma GCC unroll 8
                for (int i = 0; i < N * G; ++i) g[i] = d[i] * inverse[i];
            } else {
                V m[N * G];
                Base::multiply(a, table, backward, x, m);
#pragma GCC unroll 8
                for (int i = 0; i < N * G; ++i) g[i] = d[i] * inverse<T>(m[i]);
            }
            if constexpr (P != Power::half) {  // other powers amplify the rounding error of their sum
                V total[G] = {};
#pragma GCC unroll 8
                for (int i = 0; i < N * G; ++i) total[i % G] += d[i];
#pragma GCC unroll 8
                for (int i = 0; i < N * G; ++i) g[i] -= total[i % G];
            }
            Base::multiply(a, table, !backward, g, dx);
#pragma GCC unroll 8
            for (int i = 0; i < N * G; ++i) dx[i] *= x[i];
        }
    }

    inline void undo_ratio(int axis, int backward, int64_t tile, int64_t edge, const V *d, V *dx, const V *x,
                           const V *table) {
        const Axis &a = axes[axis];
        V *own = vectors(d_tables[axis].at(PerEdge ? (tile * (a.length - 1) + edge) * M * L : 0));
        V *behind = vectors(kept.at(edge * 3 * L)), total[3] = {};
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) {
            const V up = Base::entry(a, table, backward, 1, 1, g) * x[g];
            const V down = Base::entry(a, table, backward, 1, 0, g) * x[g];
            const V above = Base::entry(a, table, backward, 0, 1, g) + up, below = 1 + down;
            const V scale = d[g] * inverse<T>(V(above * below));
            const V share_above = scale * up * below, share_below = scale * down * above;
            dx[g] = share_above - share_below;
            // Adjoints of the entries (0, 1), (1, 0) and (1, 1), without that of (0, 0), minus their sum.
            const V parts[3] = {d[g] - share_above, -share_below, share_above};
            const int order[3] = {backward ? 1 : 0, backward ? 0 : 1, 2};
#pragma GCC unroll 3
            for (int i = 0; i < 3; ++i) {
                if (!PerEdge) total[i] += parts[i];
                else if (backward) behind[order[i] * G + g] = parts[i];
                else own[i * G + g] += parts[i] + behind[i * G + g];
            }
        }
        if constexpr (!PerEdge)
            for (int i = 0; i < 3; ++i) sums[axis][1 + (backward && i < 2 ? 1 - i : i)] += total[i];
    }

    // The sweep from the last position to the first, from its last message on.
    void undo_backward(int axis, int64_t tile, Tape &tape) {
        Axis &a = axes[axis];
        V d[N * G], g[chunk * N * G];
        std::fill_n(vectors(d_cavity.at(0)), N * G, V{});
        for (int64_t p = 1; p < a.length; ++p) {
            const size_t before = place(a, tile, p - 1);
            const V *joint = vectors(d_joint[axis].at(before)), *later = vectors(d_reverse[axis].at(before));
            const V *last = vectors(d_cavity.at((p - 1) * N * L));
#pragma GCC unroll 8
            for (int i = 0; i < N * G; ++i) d[i] = a.rho * (joint[i] + last[i]) + later[i];
            const int64_t edge = p - 1, slot = edge % chunk;
            V *g_here = PerEdge ? tape_inverse(a, &tape, 1, tile, edge) : g + slot * N * G;
            undo(axis, 1, tile, edge, d, vectors(d_cavity.at(p * N * L)), tape, g_here);
            if constexpr (!PerEdge && K > 2)
                if (slot == chunk - 1 || p + 1 == a.length)
                    outer(g, tape_x(a, &tape, 1, tile, edge - slot), slot + 1, sums[axis]);
        }
    }

    template <bool Add> void undo_forward(int axis, int64_t tile, Tape &tape, bool crosses) {
        Axis &a = axes[axis], &other = axes[1 - axis];
        alignas(64) T block[L * N * L];
        V d[N * G], dx[N * G], g[chunk * N * G];
        std::fill_n(block, L * N * L, T(0));
        std::fill_n(dx, N * G, V{});
        for (int64_t p = a.length - 1;; --p) {
            const size_t here = place(a, tile, p);
            const V *behind = vectors(d_cavity.at(p * N * L)), *joint = vectors(d_joint[axis].at(here));
            V *reverse = vectors(d_reverse[axis].at(here)), *unary = vectors(d_unary[axis].at(here));
            V *field = vectors(block + p % L * N * L);
#pragma GCC unroll 8
            for (int i = 0; i < N * G; ++i) {
                d[i] = a.rho * (joint[i] + dx[i]) + (a.rho - 1) * behind[i];
                reverse[i] = (a.rho - 1) * dx[i];
                field[i] = dx[i] + behind[i];
                unary[i] += field[i];
            }
            if (p % L == 0 && crosses)
                Base::template cross<Add>(vectors(block), other, d_joint[1 - axis], p / L, tile * L);
            if (p == 0) break;
            const int64_t edge = p - 1, slot = edge % chunk;
            V *g_here = PerEdge ? tape_inverse(a, &tape, 0, tile, edge) : g + slot * N * G;
            undo(axis, 0, tile, edge, d, dx, tape, g_here);
            if constexpr (!PerEdge && K > 2)
                if (slot == 0) {
                    const int64_t n = std::min<int64_t>(chunk, a.length - 1 - edge);
                    outer(tape_x(a, &tape, 0, tile, edge), g, n, sums[axis]);
                }
        }
    }

    // Add the products of left and right labels of a few edges to the adjoint of a shared table.
    static inline void outer(const V *left, const V *right, int64_t n, V *out) {
        for (int z = 0; z < K; z += rows)
            for (int y = 0; y < K; y += columns) {
                V sum[rows][columns];
#pragma GCC unroll 8
                for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
                    for (int j = 0; j < columns; ++j) sum[i][j] = out[(z + i) * K + y + j];
                for (int64_t e = 0; e < n; ++e)
                    for (int g = 0; g < G; ++g)
                        add(left + e * N * G + g, right + e * N * G + g, z, y, sum);
#pragma GCC unroll 8
                for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
                    for (int j = 0; j < columns; ++j) out[(z + i) * K + y + j] = sum[i][j];
            }
    }

    static inline void add(const V *left, const V *right, int z, int y, V (&sum)[rows][columns]) {
        V b[columns];
#pragma GCC unroll 8
        for (int j = 0; j < columns; ++j) b[j] = right[(y + j) * G];
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            const V c = left[(z + i) * G];
#pragma GCC unroll 8
            for (int j = 0; j < columns; ++j) sum[i][j] += c * b[j];
        }
    }

    // The adjoints of one table per edge, from the messages of all iterations.
    void own_tables(int axis) {
        Axis &a = axes[axis];
        for (int64_t tile = 0; tile < a.tiles; ++tile)
            for (int64_t edge = 0; edge + 1 < a.length; ++edge) {
                V *out = vectors(d_tables[axis].at((tile * (a.length - 1) + edge) * M * L));
                for (int g = 0; g < G; ++g)
                    for (int z = 0; z < K; z += rows)
                        for (int y = 0; y < K; y += columns) {
                            V sum[rows][columns] = {};
                            for (auto &tape : tapes) {
                                Tape &kept = tape[axis];
                                const V *x = tape_x(a, &kept, 0, tile, edge) + g;
                                const V *x_back = tape_x(a, &kept, 1, tile, edge) + g;
                                add(x, tape_inverse(a, &kept, 0, tile, edge) + g, z, y, sum);
                                add(tape_inverse(a, &kept, 1, tile, edge) + g, x_back, z, y, sum);
                            }
#pragma GCC unroll 8
                            for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
                                for (int j = 0; j < columns; ++j)
                                    out[((z + i) * K + y + j) * G + g] = sum[i][j];
                        }
            }
    }

public:
    // The adjoints of potentials, in the order of the problem.
    void read_gradient(const Problem &problem, std::vector<double> &unary, std::vector<double> (&tables)[2]) {
        for (int64_t r = 0; r < problem.height; ++r)
            for (int64_t c = 0; c < problem.width; ++c)
                for (int n = 0; n < N; ++n) {
                    const double rows = *d_unary[0].at(cell(0, r, c) + n * L);
                    const double d = rows + *d_unary[1].at(cell(1, c, r) + n * L);
                    double *out = &unary[(r * problem.width + c) * K + n];
                    if constexpr (K == 2) out[0] = -d, out[1] = d;
                    else out[0] = d;
                }
        for (int axis = 0; axis < 2; ++axis) {
            const int64_t lines = PerEdge ? axis == 0 ? problem.height : problem.width : 1;
            const int64_t edges = PerEdge ? axes[axis].length - 1 : 1;
            for (int64_t line = 0; line < lines; ++line)
                for (int64_t p = 0; p < edges; ++p) {
                    const int64_t edge = axis == 0 ? line * edges + p : p * lines + line;
                    read_table(problem, axis, line, p, &tables[axis][edge * K * K]);
                }
        }
    }

private:
    void read_table(const Problem &problem, int axis, int64_t line, int64_t p, double *out) {
        Axis &a = axes[axis];
        double rest = 0;
        for (int n = K == 2; n < K * K; ++n) {
            if constexpr (PerEdge) {
                const size_t at = ((line / L * (a.length - 1) + p) * M + n - (K == 2)) * L + line % L;
                out[n] = *d_tables[axis].at(at) * (K == 2 ? 1 : double(*a.tables.at(at)));
            } else {
                out[n] = 0;
                for (int i = 0; i < W; ++i) out[n] += sums[axis][n][i];
                if (K > 2) out[n] *= a.shared[0][n];
            }
            out[n] /= problem.rho[axis];
            rest -= out[n];
        }
        if (K == 2) out[0] = rest;
    }
};
