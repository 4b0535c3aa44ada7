package io.jccl.train;

import java.util.SplittableRandom;

/**
 * Text to train on: sentences of a small grammar, determined by the seed.
 *
 * <pre>
 * sentence = subject verb object [adverb] "."
 * subject  = "the" [adjective] noun ["near" subject]
 * object   = subject
 * </pre>
 */
final class Grammar {
    /** All characters; a character's index is its token. */
    static final String ALPHABET = " .abcdefghijklmnopqrstuvwxyz";

    private static final String[] ADJECTIVES = {"red", "old", "quick", "small", "quiet", "warm"};
    private static final String[] NOUNS = {
        "fox", "river", "baker", "stone", "garden", "cat", "window", "cloud"
    };
    private static final String[] VERBS = {"sees", "follows", "likes", "hides", "paints", "finds"};
    private static final String[] ADVERBS = {"today", "slowly", "again", "at night"};

    private final SplittableRandom random;
    private final StringBuilder text = new StringBuilder();

    private Grammar(long seed) {
        this.random = new SplittableRandom(seed);
    }

    /**
     * Generates sentences.
     *
     * @param seed seed of the sentences
     * @param length number of characters
     * @return tokens, indices into {@link #ALPHABET}
     */
    static byte[] tokens(long seed, int length) {
        Grammar g = new Grammar(seed);
        while (g.text.length() < length) {
            g.sentence();
        }
        byte[] tokens = new byte[length];
        for (int i = 0; i < length; i++) {
            tokens[i] = (byte) ALPHABET.indexOf(g.text.charAt(i));
        }
        return tokens;
    }

    private void sentence() {
        subject();
        word(VERBS);
        subject();
        if (random.nextInt(3) == 0) {
            word(ADVERBS);
        }
        text.setCharAt(text.length() - 1, '.');
        text.append(' ');
    }

    private void subject() {
        text.append("the ");
        if (random.nextBoolean()) {
            word(ADJECTIVES);
        }
        word(NOUNS);
        if (random.nextInt(5) == 0) {
            text.append("near ");
            subject();
        }
    }

    private void word(String[] choices) {
        text.append(choices[random.nextInt(choices.length)]).append(' ');
    }
}
