package io.jccl.train;

import com.knuddels.jtokkit.Encodings;
import com.knuddels.jtokkit.api.Encoding;
import com.knuddels.jtokkit.api.EncodingType;
import com.knuddels.jtokkit.api.IntArrayList;
import java.io.IOException;
import java.io.Reader;
import java.util.Arrays;
import java.util.List;

/** The meaning of the tokens of a text. */
public sealed interface Vocabulary {
    /**
     * Number of different tokens.
     *
     * @return 2 or more
     */
    int size();

    /**
     * Its name in files of weights: vocabularies with the same name are equal.
     *
     * @return the alphabet, or the tokenizer
     */
    String id();

    /** The token that precedes a generated text: the end of a line, else the first one. */
    int start();

    /** The text of the first {@code count} tokens. */
    String text(int[] tokens, int count);

    /** Reads a text to its end. */
    void read(Reader reader, Tokens to) throws IOException;

    /**
     * A token is a character.
     *
     * @param alphabet all of them; the index of each is its token
     */
    record Characters(String alphabet) implements Vocabulary {
        @Override
        public int size() {
            return alphabet.length();
        }

        @Override
        public String id() {
            return alphabet;
        }

        @Override
        public int start() {
            return Math.max(0, alphabet.indexOf('\n'));
        }

        @Override
        public String text(int[] tokens, int count) {
            StringBuilder text = new StringBuilder(count);
            for (int i = 0; i < count; i++) {
                text.append(alphabet.charAt(tokens[i]));
            }
            return text.toString();
        }

        @Override
        public void read(Reader reader, Tokens to) throws IOException {
            int[] index = new int[1 << Character.SIZE];
            for (int i = 0; i < alphabet.length(); i++) {
                index[alphabet.charAt(i)] = i;
            }
            char[] piece = new char[PIECE];
            for (int n = reader.read(piece); n >= 0; n = reader.read(piece)) {
                for (int i = 0; i < n; i++) {
                    to.add(index[piece[i]]);
                }
            }
        }
    }

    /** A token is a piece of a word: byte-pair encoding with a published vocabulary. */
    enum BytePairs implements Vocabulary {
        /** GPT-2's and GPT-3's. */
        GPT2("gpt2", EncodingType.R50K_BASE, 50_257),
        /** GPT-4's. */
        CL100K("cl100k", EncodingType.CL100K_BASE, 100_277),
        /** GPT-4o's. */
        O200K("o200k", EncodingType.O200K_BASE, 200_019);

        private final String label;
        private final EncodingType type;
        private final int size;

        BytePairs(String label, EncodingType type, int size) {
            this.label = label;
            this.type = type;
            this.size = size;
        }

        /**
         * Finds a tokenizer by name.
         *
         * @param label such as {@code gpt2}
         * @return the tokenizer
         * @throws IllegalArgumentException if there is none; the message lists them
         */
        public static BytePairs of(String label) {
            return Arrays.stream(values())
                    .filter(v -> v.label.equals(label))
                    .findFirst()
                    .orElseThrow(() ->
                            new IllegalArgumentException(
                                    "tokenizer '" + label + "' is unknown, expected " + labels()));
        }

        /** Its name in the library. */
        EncodingType type() {
            return type;
        }

        private static String labels() {
            List<String> all = Arrays.stream(values()).map(v -> v.label).toList();
            return "characters, " + String.join(", ", all);
        }

        /** Reads its vocabulary, which takes a moment: once for a text. */
        private Encoding encoding() {
            return Encodings.newLazyEncodingRegistry().getEncoding(type);
        }

        @Override
        public int size() {
            return size;
        }

        @Override
        public String id() {
            return "tokenizer:" + label;
        }

        @Override
        public int start() {
            return encoding().encodeOrdinary("\n").get(0);
        }

        @Override
        public String text(int[] tokens, int count) {
            IntArrayList list = new IntArrayList(count);
            for (int i = 0; i < count; i++) {
                list.add(tokens[i]);
            }
            return encoding().decode(list);
        }

        @Override
        public void read(Reader reader, Tokens to) throws IOException {
            Encoding encoding = encoding();
            StringBuilder waiting = new StringBuilder(2 * PIECE);
            char[] piece = new char[PIECE];
            for (int n = reader.read(piece); n >= 0; n = reader.read(piece)) {
                waiting.append(piece, 0, n);
                int end = end(waiting);
                encode(encoding, waiting.substring(0, end), to);
                waiting.delete(0, end);
            }
            encode(encoding, waiting.toString(), to);
        }

        private static void encode(Encoding encoding, String text, Tokens to) {
            IntArrayList tokens = encoding.encodeOrdinary(text);
            for (int i = 0; i < tokens.size(); i++) {
                to.add(tokens.get(i));
            }
        }

        /**
         * Where a text can be cut without changing its tokens: before the end of a line that
         * follows a letter. All of these tokenizers begin a new piece there, whatever comes after
         * it.
         */
        private static int end(StringBuilder text) {
            for (int i = text.length() - 1; i > 0; i--) {
                if (text.charAt(i) == '\n' && Character.isLetter(text.charAt(i - 1))) {
                    return i;
                }
            }
            return 0;
        }
    }

    /** Characters that are read at a time. */
    int PIECE = 1 << 20;
}
