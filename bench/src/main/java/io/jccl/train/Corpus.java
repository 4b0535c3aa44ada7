package io.jccl.train;

import io.jccl.internal.FileReads;
import io.jccl.internal.SplitMix;
import java.io.IOException;
import java.io.Reader;
import java.nio.charset.MalformedInputException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;

/**
 * A text to train on, as tokens.
 *
 * @param tokens of the text
 * @param vocabulary the meaning of the tokens
 * @param source its source, for reports
 */
public record Corpus(Tokens tokens, Vocabulary vocabulary, String source) {
    /** Different characters of a text whose tokens are characters. */
    private static final int MOST_CHARACTERS = 1 << Byte.SIZE;

    private static final long MOST_BYTES = 2L << 30;
    private static final int GRAMMAR_LENGTH = 1 << 17;

    /**
     * Creates sentences of {@link Grammar}.
     *
     * @param seed seed of the sentences
     * @return 131,072 characters
     */
    public static Corpus grammar(long seed) {
        Vocabulary vocabulary = new Vocabulary.Characters(Grammar.ALPHABET);
        Tokens tokens = new Tokens(vocabulary.size());
        for (byte token : Grammar.tokens(seed, GRAMMAR_LENGTH)) {
            tokens.add(token);
        }
        return new Corpus(tokens, vocabulary, "a grammar's sentences");
    }

    /**
     * Reads a file whose tokens are its characters. It is read twice, in pieces.
     *
     * @param file UTF-8 with at most 256 different characters
     * @return its text
     * @throws IllegalArgumentException if there is no such file, or it is not such a text
     * @throws IOException if it cannot be read
     */
    public static Corpus of(Path file) throws IOException {
        BitSet met = new BitSet(1 << Character.SIZE);
        read(
                file,
                reader -> {
                    char[] piece = new char[Vocabulary.PIECE];
                    for (int n = reader.read(piece); n >= 0; n = reader.read(piece)) {
                        for (int i = 0; i < n; i++) {
                            met.set(piece[i]);
                        }
                    }
                });
        if (met.cardinality() > MOST_CHARACTERS || met.cardinality() < 2) {
            throw new IllegalArgumentException(
                    "%s has %s different characters, expected 2 to %s; --tokenizer gpt2 takes any"
                            .formatted(file, met.cardinality(), MOST_CHARACTERS));
        }
        StringBuilder alphabet = new StringBuilder();
        met.stream().forEach(c -> alphabet.append((char) c));
        return of(file, new Vocabulary.Characters(alphabet.toString()));
    }

    /**
     * Reads a file, in pieces.
     *
     * @param file UTF-8 of at most 2 GiB
     * @param vocabulary the tokens of the text
     * @return its text
     * @throws IllegalArgumentException if there is no such file, or it is not such a text
     * @throws IOException if it cannot be read
     */
    public static Corpus of(Path file, Vocabulary vocabulary) throws IOException {
        Tokens tokens = new Tokens(vocabulary.size());
        read(file, reader -> vocabulary.read(reader, tokens));
        return new Corpus(tokens, vocabulary, file.getFileName().toString());
    }

    private interface Use {
        void of(Reader reader) throws IOException;
    }

    private static void read(Path file, Use use) throws IOException {
        if (!Files.exists(file)) {
            throw new IllegalArgumentException("there is no file " + file);
        }
        if (Files.isDirectory(file)) {
            throw new IllegalArgumentException(file + " is a folder; give a file of text");
        }
        try (Reader reader = Files.newBufferedReader(file)) {
            long size = Files.size(file);
            if (size > MOST_BYTES) {
                throw new IllegalArgumentException(
                        file + " has " + size + " bytes, expected at most " + MOST_BYTES);
            }
            use.of(reader);
        } catch (MalformedInputException e) {
            throw new IllegalArgumentException(file + " is not UTF-8", e);
        } catch (IOException e) {
            throw FileReads.named(file, e);
        }
    }

    /**
     * Number of tokens.
     *
     * @return 0 or more
     */
    public int length() {
        return tokens.length();
    }

    /**
     * The lowest loss of a model that ignores the context.
     *
     * @return nats per token
     */
    public double unigramEntropy() {
        return tokens.unigramEntropy();
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
