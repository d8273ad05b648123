"""What people say when they correct an agent, per language: the default phrases and what only looks like one.

A phrase is plain text in lower case, never a pattern, so a person's own phrases in ``fleet.toml`` cannot make matching
slow. It counts as whole words (scripts without spaces aside). ``^`` before it: only as the first words of a message;
``~``: only at the start of a sentence; ``·`` in it stands for anything masked (a quotation, inline code).

Strong phrases say by themselves that something was wrong, medium ones almost always do, weak ones only together with
another or at the start of a short message.
"""

PRECEDENCE = ("frustration", "knowledge", "correction", "validation")
"""Where a message holds several kinds, the first of these is told."""

HIDDEN = "·"
"""What a masked quotation or piece of code leaves behind."""

PHRASES: dict[str, dict[str, dict[str, str]]] = {
    "en": {
        "frustration": {
            "strong": (
                "how many times|i already told you|i've told you|as i already said|i keep telling you|you keep|"
                "same mistake|same mistakes|what are you doing|are you kidding|ignoring my|ignores my|ignored my|"
                "~stop *ing|please stop *ing|stop asking|stop doing|come on man|do as i say|do what i say|what i say|"
                "just do what|this is useless|ffs|wtf|you always forget|have to tell you|had to tell you|"
                "have to repeat|wasting my time"
            ),
            "medium": (
                "~dude|for the third time|for the second time|once again you|not again|~again!|same issue again|"
                "same error again|i give up|~come on|unacceptable|~seriously|pay attention"
            ),
            "weak": "ugh|sigh|useless|ridiculous|annoying|garbage|omg|literally",
        },
        "knowledge": {
            "strong": (
                "from now on|for future reference|in the future, please|in future, please|next time,|going forward|"
                "remember this:|keep in mind for next time|we never use|we always use"
            ),
            "medium": (
                "our convention|the convention here|as a rule|in this repo we|we don't use|we do not use|"
                "^never|^always|should never|must never|the rule is|~we never|~we always|~remember:"
            ),
            "weak": "never|always|in this repo|in this project|by convention",
        },
        "correction": {
            "strong": (
                "that's wrong|thats wrong|that is wrong|this is wrong|you're wrong|you are wrong|you're incorrect|"
                "you are incorrect|you're mistaken|you are mistaken|is incorrect|that's incorrect|that's not what i|"
                "that is not what i|not what i asked|not what i meant|not what i wanted|i told you|i asked you to|"
                "i asked for|i said|i had said|i meant|you were told|were supposed to|you forgot|you broke|"
                "you deleted|you ignored|you misread|you misunderstood|you overwrote|you used the wrong|wrong again|"
                "why did you|that's not right|that is not right|this is not right|isn't right|should have been|"
                "not like that|that's a mistake|you made a mistake|not how it works|should not have been|"
                "simply not true|just not true|that's not true|that is not true|you should have|you shouldn't have|"
                "did i say|did i ask|never asked|i already gave|i already said|i already told|already gave you|"
                "didn't ask|did not ask"
            ),
            "medium": (
                "^no|~no,|~no wait|^nope|^nah|^wrong|^not quite|^not true|^incorrect|^undo|revert that|revert this|"
                "revert it|undo that|undo this|undo it|roll that back|you used|you removed|you missed|you changed|"
                "you skipped|you didn't|you did not|you haven't|you still|you left|you dropped|you renamed|"
                "you shouldn't|you were not|you weren't|you messed|you can't just|you cannot just|"
                "you don't need to do|you don't need to check|^you don't need|didn't you|don't you read|haven't you|"
                "aren't you|you're *ing|youre *ing|you're not|youre not|you are not|youre wrong|why are you *ing|"
                "why do you|why don't you ever|why would you|why didn't you|why is it still|^why do we have|"
                "^why so many|is wrong|was wrong|are wrong|not right|isn't valid|is not valid|isn't correct|"
                "not correct|makes no sense|did not work|didn't work|that didn't|did not fix|didn't fix|did not help|"
                "didn't help|not fixed|keeps failing|nothing changed|still wrong|still broken|still not|still isn't|"
                "still doesn't|still does not|still don't|still fails|still failing|still getting|still the same|"
                "same error|same problem|same result|but still|but it's not|but it isn't|but that's not|that's still|"
                "it's still|should be ·|· should be|that should be|this should be|these should be|it should be|"
                "they should be|should not be|shouldn't be there|^i don't like|i don't want|^i didn't want|"
                "we don't want|^don't|^do not|^please don't|^stop|^please stop|^instead of|^instead,|^actually,|"
                "^actually no|i thought we|^i suggested|^wait i|^wait, i|^wait no|^oh i mean|^i mean|"
                "that doesn't seem|this doesn't seem|doesn't seem right|doesn't look right|don't think that's right|"
                "don't think that's correct|^but you|wrong file|wrong branch|wrong folder|wrong directory|wrong one|"
                "the wrong way|should be the other way|other way around"
            ),
            "weak": (
                "wrong|incorrect|mistake|should be|should not|instead|rather than|actually|again|no|stop|don't|"
                "put it back|do not|revert|undo|still|supposed|aren't|isn't|we don't need|must not|just use|not just|"
                "wait|hold on"
            ),
        },
        "validation": {
            "strong": "great work|good job|well done|nice work|great job|excellent work|works perfectly|love it",
            "medium": (
                "perfect|looks good|lgtm|looks great|this is great|that's great|works great|works well|works now|"
                "exactly right|thank you|thanks|excellent|awesome|good plan|good catch"
            ),
        },
    },
    "de": {
        "frustration": {
            "strong": "wie oft|schon wieder|hör auf|hör endlich auf|immer noch falsch|zum dritten mal|ignorierst",
            "medium": "das kann doch nicht|~mensch|echt jetzt|lass das",
            "weak": "endlich|ständig|wieder",
        },
        "knowledge": {
            "strong": "ab jetzt|von nun an|in zukunft|künftig|ab sofort|merk dir",
            "medium": "~wir verwenden|~wir nutzen|~bei uns|^niemals|grundsätzlich|^immer",
            "weak": "immer|niemals",
        },
        "correction": {
            "strong": (
                "das ist falsch|das stimmt nicht|stimmt nicht|du hast die falsche|du hast das falsche|"
                "du hast den falschen|ich habe doch gesagt|ich hatte gesagt|hatte ich gesagt|hatte ich schon gesagt|"
                "habe ich gesagt|ich hab doch gesagt|hab ich gesagt|ich habe gesagt|du hast vergessen|"
                "das wollte ich nicht|nicht was ich|ich meinte|du solltest|warum hast du|so nicht|das war falsch|"
                "mach das rückgängig|du irrst dich|nicht das, was|du hast dich geirrt|hättest du"
            ),
            "medium": (
                "^nein,|^nein.|^nein!|^nein das|^nein so|^nee|~nein,|^falsch|rückgängig|du hast nicht|du hast mir|"
                "du hast die|du hast das|· sollte|sollte ·|^nicht so|^bitte nicht|^stopp|^nimm|^statt|"
                "^eigentlich sollte|ist falsch|war falsch|ist nicht richtig|falsche datei|falscher|muss heißen|"
                "sollte heißen|immer noch nicht|immer noch kein|hast du nicht|^nein|hat nicht geholfen|"
                "du kannst nicht einfach|^warte,|^moment,|warum machst du|warum nimmst du|^hör"
            ),
            "weak": "falsch|falsche|falschen|sollte|statt|anstatt|fehler|eigentlich|gesagt",
        },
        "validation": {
            "strong": "gut gemacht|super gemacht|gute arbeit",
            "medium": "perfekt|passt so|sieht gut aus|danke|super|ganz gut|genau richtig",
        },
    },
    "es": {
        "frustration": {
            "strong": ("otra vez lo mismo|cuántas veces|cuantas veces|deja de|ya te dije|ya te lo dije|siempre haces"),
            "medium": "~otra vez|~de nuevo lo mismo|en serio",
            "weak": "otra vez|de nuevo",
        },
        "knowledge": {
            "strong": "a partir de ahora|de ahora en adelante|la próxima vez|en el futuro|recuerda que siempre",
            "medium": "~nosotros usamos|~aquí usamos|en este repo usamos|^siempre|^nunca",
            "weak": "siempre|nunca",
        },
        "correction": {
            "strong": (
                "eso está mal|está mal|esto está mal|te dije|te había dicho|te he dicho|no es lo que te pedí|"
                "no es lo que pedí|no era lo que|te equivocaste|te has equivocado|estás equivocado|olvidaste|"
                "te olvidaste|has olvidado|por qué borraste|por qué has|por qué cambiaste|no es así|"
                "eso no es correcto|me refería|quise decir|rompiste|borraste|quería decir|por qué hiciste|"
                "eso es incorrecto"
            ),
            "medium": (
                "^no,|^no.|^no!|~no, |^así no|^deshaz|deshaz eso|revierte|^mal|es incorrecto|no es correcto|"
                "no es eso|debería ser|en lugar de ·|no pedí|^no uses|^no hagas|^no toques|^para|cambiaste|"
                "no funciona todavía|sigue sin|sigue igual|sigue fallando|todavía no|no funcionó|^espera,|"
                "no puedes simplemente|por qué estás|tenías que|usaste|debías"
            ),
            "weak": "incorrecto|equivocado|error|debería|en vez de|en lugar de|dije",
        },
        "validation": {
            "strong": "buen trabajo|muy buen trabajo|bien hecho",
            "medium": "perfecto|está muy bien|muy bien|gracias|excelente|genial",
        },
    },
    "fr": {
        "frustration": {
            "strong": (
                "encore une fois, arrête|combien de fois|arrête d'|arrête de|je t'ai déjà dit|toujours la même erreur"
            ),
            "medium": "~encore une fois|~encore!|~encore !|sérieusement",
            "weak": "encore",
        },
        "knowledge": {
            "strong": "désormais|dorénavant|à partir de maintenant|à l'avenir|la prochaine fois|retiens que",
            "medium": "~ici on utilise|~chez nous|^toujours|^jamais|on utilise toujours",
            "weak": "toujours|jamais",
        },
        "correction": {
            "strong": (
                "c'est faux|ce n'est pas ce que|c'est pas ce que|je t'ai dit|je t'avais dit|tu as oublié|"
                "tu t'es trompé|c'est incorrect|ce n'est pas correct|pas comme ça|pourquoi tu as|pourquoi as-tu|"
                "tu as cassé|tu as supprimé|je voulais dire|il fallait|tu aurais dû|c'est pas ça|ce n'est pas ça|"
                "tu as encore"
            ),
            "medium": (
                "^non,|^non.|^non !|~non, |^faux|^annule|annule ça|reviens en arrière|tu as changé|tu n'as pas|"
                "devrait être ·|· qui devrait être|· devrait être|aurait dû|^n'utilise pas|^ne fais pas|"
                "^ne touche pas|est faux|est incorrect|toujours pas|n'a pas marché|^attends,|tu ne peux pas juste|"
                "pourquoi tu|^non|mauvais fichier|tu as utilisé|je n'ai pas demandé"
            ),
            "weak": "faux|incorrect|erreur|devrait|au lieu de|plutôt",
        },
        "validation": {
            "strong": "bon travail|beau travail|bien joué",
            "medium": "parfait|très bien|tres bien|merci|excellent|super|pas mal",
        },
    },
    "zh": {
        "frustration": {
            "strong": "又错了|又是同样|说了多少次|说过多少次|怎么又|又忘了|还要我说几次|都说了",
            "medium": "别再|你总是",
            "weak": "又|总是",
        },
        "knowledge": {
            "strong": "以后都|以后请|以后要|从现在开始|从今以后|记住，|记住:|记住：",
            "medium": "^一律|^永远|我们统一用|我们项目用",
            "weak": "永远",
        },
        "correction": {
            "strong": (
                "不是我要的|不是我想要|我说的是|我说过|我要的是|我的意思是|你改错|你写错|你弄错|你搞错|你理解错|"
                "你忘了|你忘记|你删|为什么你|你为什么|不是这样|改错了|这不对|这是错的|错了，|你漏|搞错了|而不是"
            ),
            "medium": (
                "^不对|^不是，|^不，|^错了|^错|~不对|^不行|^撤销|撤销|改回|恢复原来|^别|^不要|请勿|这样改还是|"
                "还是没有|还是不行|还是不对|还是一样|还是错|没有改|应该用|应该去掉|应该是|应该改|^应该|没让你|"
                "不是让你|没有用|没修好|没改好|等等，|^还是"
            ),
            "weak": "不对|错|应该|不是|不要|别|为什么|还是",
        },
        "validation": {
            "strong": "做得好|干得好|很棒",
            "medium": "谢谢|完美|挺好|很好|可以了|没问题|没有问题",
        },
    },
    "ja": {
        "frustration": {
            "strong": "また同じ|何度も言|何回も言|何度言|いい加減|またか",
            "medium": "やめてください|やめて。|勝手に",
            "weak": "また",
        },
        "knowledge": {
            "strong": "今後は|これからは|次回から必ず|以後は|今後、",
            "medium": "^必ず|^常に|このリポジトリでは|うちでは",
            "weak": "必ず|常に",
        },
        "correction": {
            "strong": (
                "そうじゃな|そうではな|と言いました|と言った|って言った|頼んだことと違|頼んでいな|頼んでな|"
                "間違えてい|間違えています|忘れています|忘れてい|なぜ勝手|なんで勝手|それは違|それは間違|言ったはず|"
                "ではなくて、|じゃなくて、"
            ),
            "medium": (
                "^違います|^違う|^いや、|^いいえ、|~違います|~違う|^だめ|^ダメ|元に戻して|取り消して|間違っています|"
                "間違ってる|消さないで|変えないで|使わないで|なぜ|ではなく|じゃなく|べきで|した方が|のではなく|"
                "直っていな|直ってな|直りません|変わっていません|まだ同じ|^待って"
            ),
            "weak": "違|間違|ないで|べき|はず",
        },
        "validation": {
            "strong": "よくできました|素晴らしい",
            "medium": "ありがとう|完璧|良いです|いいですね|大丈夫です|問題ありません",
        },
    },
}
"""Language, kind, confidence: the phrases, separated by ``|``."""

EXCLUSIONS: dict[str, str] = {
    "en": (
        "no problem|no problems|no worries|no worry|don't worry|do not worry|dont worry|actually good|actually great|"
        "actually fine|actually, that looks good|actually, that looks great|actually that looks good|no thanks|"
        "no thank you|no, thanks|no, thank you|stop here, great work|stop here, good work|stop here, thanks|"
        "no, that's fine|no that's fine|no, it's fine|no it's fine|no, this is fine|no, all good|no that's good|"
        "no, that's good|no, go ahead|no go ahead|no need|no rush|no hurry|not bad|no, you're right|"
        "no, you are right|no comment|no idea|no objections|nothing wrong with that|don't mind|don't bother|"
        "no, keep going|no, looks good|no, it's good|no, that's ok|never mind"
    ),
    "de": (
        "kein problem|keine sorge|nein danke|nein, danke|nein, passt|nein passt|passt schon|nicht schlecht|"
        "macht nichts|keine ursache|eigentlich gut|eigentlich ganz gut|nein, alles gut|schon gut"
    ),
    "es": (
        "no hay problema|no te preocupes|no pasa nada|no, gracias|no gracias|no está mal|nada mal|sin problema|"
        "no hay de qué|no, está bien|no, así está bien"
    ),
    "fr": (
        "pas de problème|pas de probleme|pas de souci|ne t'inquiète pas|t'inquiète pas|non merci|non, merci|pas mal|"
        "ce n'est pas grave|c'est pas grave|non, c'est bon|non c'est bon|de rien|ce n'est pas faux"
    ),
    "zh": "没问题|没有问题|没关系|不用担心|别担心|不用了|不用谢|不客气|不错|没事|不要紧|不，谢谢",
    "ja": (
        "問題ありません|問題ない|大丈夫|いいえ、結構|結構です|気にしないで|心配しないで|心配ありません|悪くない|"
        "違いありません"
    ),
}
"""A message that begins with one of these corrects nothing, unless a strong phrase follows."""

LOOKALIKES: dict[str, str] = {
    "en": (
        "wait for|wait until|wait till|you're doing|you're going to|you're working|you're looking|you're welcome|"
        "make sure you don't|make sure not to|stop words|no longer|no more|no matter|no one|no op|no doubt|no such|"
        "non-stop|stop button|stop here|not wrong|which is wrong|what's wrong|what is wrong|what was wrong|"
        "what went wrong|went wrong|goes wrong|go wrong|going wrong|anything wrong|something wrong|"
        "something is wrong|something's wrong|wrong password|wrong input|wrong number of|wrong guess|if i'm wrong|"
        "if i am wrong|don't forget|do not forget|don't hesitate|not sure|not only|why not|not yet|don't know|"
        "do not know|i don't think i|if not|or not|whether or not|i think you're right|thank you|make sure you|"
        "should i|should we|do i|undo/redo|undo and redo|stop hook|don't see|i don't understand|don't have|"
        "we don't have|i don't see|let me know|still need|still have|not allowed|not required|not found|not null"
    ),
    "de": (
        "nicht schlecht|nicht falsch|nicht nur|ob nicht|falls nicht|was ist falsch|falsches passwort|"
        "falschem passwort|falsche eingabe|falscher eingabe|fehlermeldung|nicht vergessen|vergiss nicht|warum nicht"
    ),
    "es": (
        "no solo|no olvides|no está mal|qué está mal|contraseña incorrecta|mensaje de error|por qué no|si no|no sé|"
        "qué es lo que está mal|no tengo|no dudes"
    ),
    "fr": (
        "n'est pas faux|pas faux|pas mal|n'oublie pas|message d'erreur|pas seulement|pourquoi pas|si non|"
        "qu'est-ce qui est faux|n'hésite pas|erreur de compilation|je n'ai pas|que je n'avais pas|n'avais rien|"
        "pas de souci|pas de problème|je ne sais pas|pas pu"
    ),
    "zh": (
        "不对称|不对外|不对齐|对不对|是不是|不错|错误信息|错误码|密码错误|输入错误|没有错|没错|报错|还是说|特别|区别|"
        "类别|级别|别人|别的|识别|分别|是不是不对|哪里不对|哪里错|是否应该|应该怎么|还是用哪|不是吗|错误提示|"
        "错误处理|不要忘|别忘|不仅"
    ),
    "ja": (
        "違いを|違いは|の違い|違いが|相違|間違っていません|間違いありません|間違いない|間違っていない|どこが間違|"
        "何が間違|間違っていたら|間違っているか|間違いを探|エラーメッセージ|または|ままで|そのまま|なければならない|"
        "まま|またね|すばらしい"
    ),
}
"""Text that holds a phrase and means something else: hidden before the phrases are looked for."""

NEGATORS: dict[str, str] = {
    "en": "not|nothing|isn't|wasn't|aren't|never|without|hardly|don't think|doesn't|didn't|no|nobody|none",
    "de": "nicht|nichts|kein|keine|keinen|nie|ohne",
    "es": "no|nada|ningún|ninguna|nunca|sin",
    "fr": "n'est|n'a|ne|rien|aucun|aucune|sans|jamais",
    "zh": "没|没有|并不|不是说|不算",
    "ja": "",
}
"""Within 25 characters before a phrase, in the same clause, they turn it round."""

NEGATED_AFTER: dict[str, str] = {
    "ja": "ない|ません|ていない|てない|ていません|てません|ではない|はない|ありません",
}
"""The same right behind the phrase, for languages that negate at the end."""

TASKS: dict[str, str] = {
    "en": (
        "add|write|create|implement|build|make|refactor|rename|update|translate|explain|find|fix|show|generate|"
        "design|set up|setup|review|investigate|check|help|given|migrate|port|convert|document|test|run|merge|"
        "please add|please write|please create|please rename|please implement|please fix|please review|please update|"
        "can you|could you|would you|let's|lets|i want to|i need|we need|we want to|i'd like|use|keep|when|if|say|"
        "describe|summarize|tell me|look at|read|learn|start|begin|put|move|apply|ignore the"
    ),
    "de": (
        "schreib|schreibe|erstelle|baue|füge|übersetze|erkläre|finde|zeige|bitte füge|bitte schreib|kannst du|"
        "könntest du|implementiere|ich möchte|wir brauchen|prüfe|der|die|wenn|falls"
    ),
    "es": (
        "crea|escribe|añade|agrega|implementa|traduce|explica|busca|puedes|podrías|quiero|necesito|haz|genera|"
        "muestra|el|la|si"
    ),
    "fr": (
        "écris|crée|ajoute|implémente|traduis|explique|trouve|peux-tu|pourrais-tu|je veux|il faudrait|génère|montre|"
        "le|la|si"
    ),
    "zh": "写|创建|添加|实现|请写|请实现|翻译|解释|帮我|可以|能不能|如何|怎么|先|把|如果|检查|修改",
    "ja": "",
}
"""First words of a task: what follows is an instruction, so the weaker phrases in it count one less."""

TASKS_WITHIN: dict[str, str] = {
    "ja": "を書いて|を作って|を作成して|を追加して|を実装して|に訳して|を説明して|を調べて|を教えて",
}
"""The same for languages whose verb stands at the end: anywhere in the message."""

ASKING: dict[str, str] = {
    "en": (
        "what|what's|is|are|was|were|does|do|did|should|can|could|would|will|how|who|when|where|which|has|have|am|"
        "may|any|should the|anything|are you|did you|do you|does it|does this|is it|is this|is there|are there|"
        "have you|has it|will it|will this|was it|can we|could we|should we|should i"
    ),
    "de": "was|ist|sind|soll|sollte|kann|wie|wer|wann|wo|welche|gibt|wird",
    "es": "qué|es|está|son|cómo|quién|cuándo|dónde|puede|debería|hay|cuál",
    "fr": "qu'est-ce|est-ce|que|comment|qui|quand|où|quel|quelle|faut-il|peut-on",
    "zh": "",
    "ja": "",
}
"""First words of a question that asks and does not reproach; those of two words need no question mark."""

SUPPOSING: dict[str, str] = {
    "en": "if|when|whenever|while|until|in case|unless|whether|suppose",
    "de": "wenn|falls|sofern|ob",
    "es": "si|cuando|en caso",
    "fr": "si|quand|lorsque|au cas où",
    "zh": "如果|当|假如|要是",
    "ja": "",
}
"""Between the start of a sentence and a phrase: the phrase describes a case, not what happened."""

FILLERS = frozenset(
    {
        "ah",
        "alors",
        "also",
        "and",
        "ben",
        "bitte",
        "bon",
        "bueno",
        "but",
        "dude",
        "eh",
        "er",
        "hallo",
        "hello",
        "hey",
        "hi",
        "hm",
        "k",
        "man",
        "now",
        "oh",
        "ok",
        "okay",
        "oye",
        "please",
        "plus",
        "pues",
        "right",
        "so",
        "sorry",
        "then",
        "uhm",
        "well",
        "äh",
        "あの",
        "えっと",
        "哎",
        "嗯",
    }
)
"""Words before the first word that tell nothing."""
