package io.jccl.cli.train;

import io.jccl.train.Corpus;
import io.jccl.train.Vocabulary;
import java.io.IOException;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** What a model is trained on. */
final class CorpusOptions {
    private static final String CHARACTERS = "characters";

    @Option(
            names = "--text",
            paramLabel = "<file>",
            description = "Text to train on (default: sentences of a small grammar).")
    private @Nullable Path text;

    @Option(
            names = "--tokenizer",
            defaultValue = CHARACTERS,
            paramLabel = "<name>",
            description =
                    "Tokens of --text: characters, or byte pairs with the vocabulary of gpt2 (50,257),"
                            + " cl100k (GPT-4) or o200k (GPT-4o) (default: ${DEFAULT-VALUE}).")
    private String tokenizer = CHARACTERS;

    Corpus corpus(long seed) throws IOException {
        boolean characters = tokenizer.equals(CHARACTERS);
        if (text == null && !characters) {
            Vocabulary.BytePairs.of(tokenizer);
            throw new IllegalArgumentException(
                    "--tokenizer is '" + tokenizer + "', but there is no text; give --text");
        }
        if (text == null) {
            return Corpus.grammar(seed);
        }
        return characters ? Corpus.of(text) : Corpus.of(text, Vocabulary.BytePairs.of(tokenizer));
    }
}
