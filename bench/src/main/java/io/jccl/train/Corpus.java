package io.jccl.train;

import io.jccl.internal.SplitMix;
import java.io.IOException;
import java.nio.charset.MalformedInputException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.stream.Collectors;

/**
 * A text to train on, as tokens.
 *
 * @param tokens one per character: its index in the alphabet, unsigned; must not be modified
 * @param alphabet the characters that occur
 * @param source its source, for reports
 */
public record Corpus(byte[] tokens, String alphabet, String source) {
    /** A token is a byte. */
    private static final int MOST_CHARACTERS = 1 << Byte.SIZE;

    private static final long MOST_BYTES = 256L << 20;
    private static final int GRAMMAR_LENGTH = 1 << 17;

    /**
     * Creates sentences of {@link Grammar}.
     *
     * @param seed seed of the sentences
     * @return 131,072 characters
     */
    public static Corpus grammar(long seed) {
        return new Corpus(
                Grammar.tokens(seed, GRAMMAR_LENGTH), Grammar.ALPHABET, "a grammar's sentences");
    }

    /**
     * Reads a file.
     *
     * @param file UTF-8 with at most 256 different characters
     * @return its text
     * @throws IOException if it cannot be read or is not such a text
     */
    public static Corpus of(Path file) throws IOException {
        String text;
        if (Files.isDirectory(file)) {
            throw new IOException(file + " is a folder; give a file of text");
        }
        try {
            if (Files.size(file) > MOST_BYTES) {
                throw new IOException(
                        file
                                + " has "
                                + Files.size(file)
                                + " bytes, expected at most "
                                + MOST_BYTES);
            }
            text = Files.readString(file);
        } catch (NoSuchFileException e) {
            throw new IOException("there is no file " + file, e);
        } catch (MalformedInputException e) {
            throw new IOException(file + " is not UTF-8", e);
        }
        String alphabet =
                text.chars()
                        .distinct()
                        .sorted()
                        .mapToObj(c -> String.valueOf((char) c))
                        .collect(Collectors.joining());
        if (alphabet.length() > MOST_CHARACTERS || alphabet.length() < 2) {
            throw new IOException(
                    file
                            + " has "
                            + alphabet.length()
                            + " different characters, expected 2 to "
                            + MOST_CHARACTERS);
        }
        byte[] index = new byte[1 << Character.SIZE];
        for (int i = 0; i < alphabet.length(); i++) {
            index[alphabet.charAt(i)] = (byte) i;
        }
        byte[] tokens = new byte[text.length()];
        for (int i = 0; i < tokens.length; i++) {
            tokens[i] = index[text.charAt(i)];
        }
        return new Corpus(tokens, alphabet, file.getFileName().toString());
    }

    /**
     * A token.
     *
     * @param at its position in the text
     * @return 0 or more
     */
    int token(int at) {
        return Byte.toUnsignedInt(tokens[at]);
    }

    /** The token that a text written by a model follows: the end of a line, else the first one. */
    int start() {
        return Math.max(0, alphabet.indexOf('\n'));
    }

    /**
     * The lowest loss of a model that ignores the context.
     *
     * @return nats per character
     */
    public double unigramEntropy() {
        return Grammar.unigramEntropy(tokens);
    }

    /**
     * Position of an example in the text. It depends only on the example's number in the whole run,
     * so any number of ranks trains on the same examples.
     *
     * @param seed seed of the run
     * @param example its number
     * @param from first position
     * @param to the position after the last
     * @return a position
     */
    static int place(long seed, long example, int from, int to) {
        return from + (int) Long.remainderUnsigned(mix(seed + example + 1), to - from);
    }

    /** The number at an index of the SplitMix64 sequence. */
    static long mix(long place) {
        return SplitMix.mix(place * SplitMix.GAMMA);
    }
}
