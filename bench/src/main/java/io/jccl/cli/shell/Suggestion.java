package io.jccl.cli.shell;

import java.util.Collection;
import java.util.Locale;

/** Suggestions for a misspelt name. */
public final class Suggestion {
    private Suggestion() {}

    /**
     * The known name that is nearest to a word. Case, hyphens and underscores do not count, so
     * {@code AllReduce} is {@code all_reduce}.
     *
     * @param word what was written
     * @param known names that exist
     * @return {@code "; did you mean NAME?"}, or nothing if no name is near
     */
    public static String of(String word, Collection<String> known) {
        String plain = plain(word);
        String nearest = "";
        int least = 1 + plain.length() / 3;
        for (String name : known) {
            int distance = distance(plain, plain(name));
            if (distance < least) {
                least = distance;
                nearest = name;
            }
        }
        return nearest.isEmpty() ? "" : "; did you mean " + nearest + "?";
    }

    private static String plain(String name) {
        return name.toLowerCase(Locale.ROOT).replaceAll("[-_]", "");
    }

    /** Letters to insert, delete, replace or exchange with their neighbour, each counted once. */
    private static int distance(String a, String b) {
        int[][] d = new int[a.length() + 1][b.length() + 1];
        for (int i = 0; i <= a.length(); i++) {
            for (int j = 0; j <= b.length(); j++) {
                if (i == 0 || j == 0) {
                    d[i][j] = i + j;
                    continue;
                }
                int replaced = d[i - 1][j - 1] + (a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1);
                d[i][j] = Math.min(replaced, 1 + Math.min(d[i - 1][j], d[i][j - 1]));
                if (i > 1
                        && j > 1
                        && a.charAt(i - 1) == b.charAt(j - 2)
                        && a.charAt(i - 2) == b.charAt(j - 1)) {
                    d[i][j] = Math.min(d[i][j], d[i - 2][j - 2] + 1);
                }
            }
        }
        return d[a.length()][b.length()];
    }
}
