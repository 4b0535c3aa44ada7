package io.jccl.engine.host;

/** The algorithms that forward data through scratch memory, for one order of the ranks. */
record Algorithms(
        Staged staged,
        Ring ring,
        BinomialTree tree,
        RecursiveDoubling doubling,
        Pairwise pairwise) {
    Algorithms(ChunkedAlgorithm.Context context) {
        this(
                new Staged(context),
                new Ring(context),
                new BinomialTree(context),
                new RecursiveDoubling(context),
                new Pairwise(context));
    }
}
