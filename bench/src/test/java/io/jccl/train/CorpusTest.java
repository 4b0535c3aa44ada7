package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.knuddels.jtokkit.Encodings;
import io.jccl.train.Vocabulary.BytePairs;
import java.io.IOException;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Texts as tokens. */
class CorpusTest {
    @TempDir private Path folder;

    private static int[] all(Tokens tokens) {
        return IntStream.range(0, tokens.length()).map(tokens::get).toArray();
    }

    private static Tokens read(Vocabulary vocabulary, String text) throws IOException {
        Tokens tokens = new Tokens(vocabulary.size());
        vocabulary.read(new StringReader(text), tokens);
        return tokens;
    }

    /** The numbers are those of OpenAI's tiktoken. */
    @ParameterizedTest
    @CsvSource("gpt2, 15496, 995")
    void publishedTokens(String name, int hello, int world) throws IOException {
        Vocabulary vocabulary = BytePairs.of(name);
        int[] tokens = all(read(vocabulary, "Hello world"));
        assertArrayEquals(new int[] {hello, world}, tokens);
        assertEquals("Hello world", vocabulary.text(tokens, 2));
        assertEquals("Hello", vocabulary.text(tokens, 1));
        assertEquals("\n", vocabulary.text(new int[] {vocabulary.start()}, 1));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"cl100k, 9906, 1917", "o200k, 13225, 2375"})
    void publishedTokensOfLargerVocabularies(String name, int hello, int world) throws IOException {
        publishedTokens(name, hello, world);
    }

    /** A text of several pieces, with all that could join what is left and right of a cut. */
    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource
    void piecesHaveTheTokensOfTheWhole(BytePairs vocabulary) throws IOException {
        String[] parts = {
            "word",
            " Word",
            "I'll",
            "\n",
            "\n\n",
            " \n",
            "\r\n",
            "  ",
            "\t",
            "1234",
            ".",
            "...",
            "/",
            "ß",
            "日本",
            "\uD83D\uDE00",
            "_",
            "\n/",
            "'s"
        };
        Random random = new Random(5);
        StringBuilder text = new StringBuilder();
        while (text.length() < 2 * Vocabulary.PIECE + 100) {
            text.append(parts[random.nextInt(parts.length)]);
        }
        String whole = text.toString();
        int[] expected =
                Encodings.newLazyEncodingRegistry()
                        .getEncoding(vocabulary.type())
                        .encodeOrdinary(whole)
                        .toArray();
        int[] tokens = all(read(vocabulary, whole));
        assertArrayEquals(expected, tokens);
        assertEquals(whole, vocabulary.text(tokens, tokens.length));
    }

    @Test
    void charactersAreThoseThatOccur() throws IOException {
        Path file = Files.writeString(folder.resolve("a.txt"), "bab\nß");
        Corpus corpus = Corpus.of(file);
        assertEquals("\nabß", corpus.vocabulary().id());
        assertArrayEquals(new int[] {2, 1, 2, 0, 3}, all(corpus.tokens()));
        assertEquals("a.txt", corpus.source());
        assertEquals(0, corpus.vocabulary().start());
        // Three of five characters occur once, one twice.
        assertEquals(0.6 * Math.log(5) - 0.4 * Math.log(0.4), corpus.unigramEntropy(), 1e-12);
    }

    /** As many bytes a token as the vocabulary needs; the checksum is of the tokens alone. */
    @ParameterizedTest
    @CsvSource({"256", "257", "65536", "65537", "200019"})
    void tokensOfAnyVocabulary(int vocabulary) {
        Tokens tokens = new Tokens(vocabulary);
        Tokens same = new Tokens(vocabulary);
        Random random = new Random(vocabulary);
        int[] expected = random.ints(1_100_000, 0, vocabulary).toArray();
        expected[7] = vocabulary - 1;
        for (int token : expected) {
            tokens.add(token);
            same.add(token);
        }
        assertArrayEquals(expected, all(tokens));
        assertEquals(tokens.checksum(), same.checksum());
        same.add(1);
        assertTrue(tokens.checksum() != same.checksum());
        assertEquals(Math.log(vocabulary), tokens.unigramEntropy(), 0.2);
    }

    @Test
    void manyCharactersNeedBytePairs() throws IOException {
        StringBuilder text = new StringBuilder();
        for (char c = 0x4E00; c < 0x4F01; c++) {
            text.append(c);
        }
        Path file = Files.writeString(folder.resolve("many.txt"), text);
        var error = assertThrows(IllegalArgumentException.class, () -> Corpus.of(file));
        assertEquals(
                file
                        + " has 257 different characters, expected 2 to 256; --tokenizer gpt2 takes any",
                error.getMessage());
        Corpus corpus = Corpus.of(file, BytePairs.GPT2);
        assertEquals(text.toString(), BytePairs.GPT2.text(all(corpus.tokens()), corpus.length()));
        assertEquals("tokenizer:gpt2", corpus.vocabulary().id());
    }
}
